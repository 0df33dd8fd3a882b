DELETE FROM projection_decision WHERE verb = :verb
