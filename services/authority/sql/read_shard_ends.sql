-- Where each shard's log ends; 0 for an empty one.
SELECT s.shard_id, coalesce(max(e.position), 0)
FROM shard s
LEFT JOIN LATERAL (
    SELECT e.position
    FROM event_log e
    WHERE e.organization_id = s.organization_id AND e.shard_id = s.shard_id
    ORDER BY e.position DESC
    LIMIT 1
) e ON true
WHERE s.organization_id = %(organization_id)s
GROUP BY s.shard_id
ORDER BY s.shard_id
