SELECT incarnation, group_id, sequence, chain_hash FROM projection_cursor WHERE group_id = :group_id
