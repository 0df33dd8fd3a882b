SELECT group_id, sequence, event_id, chain_hash, kind, reason, owner, version,
       first_failed_at, last_failed_at, attempts, tried_at
FROM projection_quarantine WHERE group_id = :group_id
