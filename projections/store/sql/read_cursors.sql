SELECT incarnation, group_id, sequence, chain_hash FROM projection_cursor ORDER BY group_id
