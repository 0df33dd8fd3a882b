SELECT group_id, sequence, chain_hash, last_failed_at, attempts, tried_at FROM projection_quarantine WHERE tried_at IS NOT NULL ORDER BY group_id
