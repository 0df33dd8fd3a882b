-- The chain hash names the Event: when it is another one, what was known of the last one does not count.
INSERT INTO projection_quarantine (
    group_id, sequence, event_id, chain_hash, kind, reason, owner, version, first_failed_at, last_failed_at, attempts
) VALUES (:group_id, :sequence, :event_id, :chain_hash, :kind, :reason, :owner, :version, :at, :at, 1)
ON CONFLICT (group_id) DO UPDATE SET
    first_failed_at = CASE WHEN projection_quarantine.chain_hash = excluded.chain_hash
                           THEN projection_quarantine.first_failed_at ELSE excluded.first_failed_at END,
    attempts = CASE WHEN projection_quarantine.chain_hash = excluded.chain_hash
                    THEN projection_quarantine.attempts + 1 ELSE 1 END,
    sequence = excluded.sequence, event_id = excluded.event_id, chain_hash = excluded.chain_hash,
    kind = excluded.kind, reason = excluded.reason, owner = excluded.owner, version = excluded.version,
    last_failed_at = excluded.last_failed_at, tried_at = NULL
