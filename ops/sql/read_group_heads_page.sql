-- Heads of the Organization's Groups (or of one), in the order of Group IDs.
SELECT g.group_id, g.shard_id, last.incarnation, last.sequence, last.chain_hash
FROM mission_group g
CROSS JOIN LATERAL (
    SELECT l.incarnation, l.sequence, l.chain_hash
    FROM event_log l
    WHERE l.organization_id = g.organization_id AND l.group_id = g.group_id
    ORDER BY l.sequence DESC
    LIMIT 1
) last
WHERE g.organization_id = %(organization_id)s AND g.group_id > %(after_group_id)s
    AND (%(group_id)s::text IS NULL OR g.group_id = %(group_id)s)
ORDER BY g.group_id
LIMIT %(limit)s
