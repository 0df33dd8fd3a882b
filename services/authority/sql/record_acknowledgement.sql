-- Only a place that the log has can be acknowledged, and never one below the acknowledged one (MWP-WRK-030). A
-- repeated or lower acknowledgement writes nothing.
INSERT INTO acknowledgement (organization_id, group_id, principal_id, incarnation, sequence, chain_hash, acknowledged_at)
SELECT e.organization_id, e.group_id, %(principal_id)s, e.incarnation, e.sequence, e.chain_hash, weavehold_clock()
FROM event_log e
WHERE e.organization_id = %(organization_id)s AND e.group_id = %(group_id)s AND e.sequence = %(sequence)s
    AND e.incarnation = %(incarnation)s AND e.chain_hash = %(chain_hash)s
ON CONFLICT (organization_id, group_id, principal_id) DO UPDATE
SET incarnation = excluded.incarnation, sequence = excluded.sequence, chain_hash = excluded.chain_hash,
    acknowledged_at = excluded.acknowledged_at
WHERE acknowledgement.sequence < excluded.sequence
