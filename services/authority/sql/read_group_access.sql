-- One probe of a key each (LATERAL with LIMIT 1): a join may be planned as a scan. For each asked Group that exists: its shard, the Principal's Membership there (null without one), and its head.
SELECT g.group_id, g.shard_id, m.body, last.incarnation, last.sequence, last.chain_hash
FROM unnest(%(group_ids)s::text[]) AS asked (group_id)
CROSS JOIN LATERAL (
    SELECT mg.organization_id, mg.group_id, mg.shard_id
    FROM mission_group mg
    WHERE mg.organization_id = %(organization_id)s AND mg.group_id = asked.group_id
    LIMIT 1
) g
LEFT JOIN LATERAL (
    SELECT en.body
    FROM entity en
    WHERE en.organization_id = g.organization_id AND en.group_id = g.group_id
        AND en.kind = 'membership' AND en.entity_id = %(principal_id)s
    LIMIT 1
) m ON true
CROSS JOIN LATERAL (
    SELECT e.incarnation, e.sequence, e.chain_hash
    FROM event_log e
    WHERE e.organization_id = g.organization_id AND e.group_id = g.group_id
    ORDER BY e.sequence DESC
    LIMIT 1
) last
