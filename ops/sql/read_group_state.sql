-- A Group at one moment: the clock, its head, how many entities of each kind it has, and those that people ask about.
SELECT g.shard_id, weavehold_clock(), last.incarnation, last.sequence, last.chain_hash, counted.amounts, e.kind, e.body
FROM mission_group g
CROSS JOIN LATERAL (
    SELECT l.incarnation, l.sequence, l.chain_hash
    FROM event_log l
    WHERE l.organization_id = g.organization_id AND l.group_id = g.group_id
    ORDER BY l.sequence DESC
    LIMIT 1
) last
CROSS JOIN LATERAL (
    SELECT json_object_agg(by_kind.kind, by_kind.amount)::text AS amounts
    FROM (
        SELECT c.kind, count(*) AS amount
        FROM entity c
        WHERE c.organization_id = g.organization_id AND c.group_id = g.group_id
        GROUP BY c.kind
    ) by_kind
) counted
LEFT JOIN entity e ON e.organization_id = g.organization_id AND e.group_id = g.group_id
    AND e.kind IN ('mission', 'membership', 'work_item')
WHERE g.organization_id = %(organization_id)s AND g.group_id = %(group_id)s
ORDER BY e.kind, e.entity_id
