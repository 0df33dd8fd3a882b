SELECT sequence, chain_hash, event_id FROM projection_applied WHERE group_id = :group_id ORDER BY sequence
