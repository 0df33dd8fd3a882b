SELECT chain_hash FROM {green}.projection_applied WHERE group_id = :group_id AND slot = :slot AND sequence = :sequence
