-- The last Event of each Group: sequence, chain hash, the shard whose log holds it, and its incarnation. A Group without Events has no row.
SELECT g.group_id, last.sequence, last.chain_hash, last.shard_id, last.incarnation
FROM unnest(%(group_ids)s::text[]) AS g (group_id)
CROSS JOIN LATERAL (
    SELECT e.sequence, e.chain_hash, e.shard_id, e.incarnation
    FROM event_log e
    WHERE e.organization_id = %(organization_id)s AND e.group_id = g.group_id
    ORDER BY e.sequence DESC
    LIMIT 1
) last
