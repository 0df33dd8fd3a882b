-- Heads of the logs and the age of the oldest row that is not relayed yet, for many shards in one look.
SELECT relayed.shard_id, head.position, extract(epoch FROM weavehold_clock() - oldest.accepted_at)::float8 AS age_seconds
FROM unnest(%(shard_ids)s::smallint[], %(positions)s::bigint[]) AS relayed (shard_id, position)
LEFT JOIN LATERAL (
    SELECT position FROM outbox
    WHERE organization_id = %(organization_id)s AND shard_id = relayed.shard_id
    ORDER BY position DESC
    LIMIT 1
) head ON true
LEFT JOIN LATERAL (
    SELECT accepted_at FROM outbox
    WHERE organization_id = %(organization_id)s AND shard_id = relayed.shard_id
        AND position = relayed.position + 1
) oldest ON true
