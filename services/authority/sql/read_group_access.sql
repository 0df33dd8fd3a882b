-- For each asked Group that exists: its shard, the Principal's Membership there (null without one), and its head.
SELECT g.group_id, g.shard_id, m.body, last.incarnation, last.sequence, last.chain_hash
FROM unnest(%(group_ids)s::text[]) AS asked (group_id)
JOIN mission_group g ON g.organization_id = %(organization_id)s AND g.group_id = asked.group_id
LEFT JOIN entity m ON m.organization_id = g.organization_id AND m.group_id = g.group_id
    AND m.kind = 'membership' AND m.entity_id = %(principal_id)s
CROSS JOIN LATERAL (
    SELECT e.incarnation, e.sequence, e.chain_hash
    FROM event_log e
    WHERE e.organization_id = g.organization_id AND e.group_id = g.group_id
    ORDER BY e.sequence DESC
    LIMIT 1
) last
