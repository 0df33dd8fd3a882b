SELECT count(*) FROM projection_decision WHERE verb = :verb
