-- The next Groups of a shard in the order of their IDs, and the incarnation that each stands in.
SELECT g.group_id, last.incarnation
FROM mission_group g
CROSS JOIN LATERAL (
    SELECT e.incarnation
    FROM event_log e
    WHERE e.organization_id = g.organization_id AND e.group_id = g.group_id
    ORDER BY e.sequence DESC
    LIMIT 1
) last
WHERE g.organization_id = %(organization_id)s AND g.shard_id = %(shard_id)s AND g.group_id > %(after_group_id)s
ORDER BY g.group_id
LIMIT %(limit)s
