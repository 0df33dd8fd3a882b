SELECT group_id, sequence, chain_hash, last_failed_at, attempts, tried_at FROM projection_quarantine WHERE group_id = :group_id
