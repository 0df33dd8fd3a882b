SELECT incarnation, group_id, sequence, chain_hash FROM {green}.projection_cursor WHERE group_id = :group_id
