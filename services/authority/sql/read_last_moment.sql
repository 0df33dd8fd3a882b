-- When any shard last accepted: a key ends after everything that it vouched for.
SELECT max(last.accepted_at)
FROM shard s
CROSS JOIN LATERAL (
    SELECT e.accepted_at
    FROM event_log e
    WHERE e.organization_id = s.organization_id AND e.shard_id = s.shard_id
    ORDER BY e.position DESC
    LIMIT 1
) last
WHERE s.organization_id = %(organization_id)s
