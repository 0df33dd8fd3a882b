-- Where a shard's log ends (0 for an empty one), under the Organization's current incarnation.
SELECT current.incarnation, coalesce(last.position, 0)
FROM shard s
CROSS JOIN LATERAL (
    SELECT i.incarnation
    FROM incarnation i
    WHERE i.organization_id = s.organization_id
    ORDER BY i.ordinal DESC
    LIMIT 1
) current
LEFT JOIN LATERAL (
    SELECT e.position
    FROM event_log e
    WHERE e.organization_id = s.organization_id AND e.shard_id = s.shard_id
    ORDER BY e.position DESC
    LIMIT 1
) last ON true
WHERE s.organization_id = %(organization_id)s AND s.shard_id = %(shard_id)s
