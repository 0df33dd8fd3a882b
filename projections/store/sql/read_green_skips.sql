SELECT sequence, chain_hash FROM {green}.projection_decision WHERE verb = :verb AND group_id = :group_id
