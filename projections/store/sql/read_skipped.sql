SELECT group_id, sequence, chain_hash FROM projection_decision WHERE verb = :verb
