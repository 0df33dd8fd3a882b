-- Last and sorted. A Command accepted meanwhile under the same Action ID fails the statement: the batch runs
-- again and finds its Receipt.
INSERT INTO receipt (organization_id, actor_id, action_id, command_hash, shard_id, first_position, event_count,
    receipt, command)
SELECT %(organization_id)s, r.*
FROM unnest(%(actor_ids)s::text[], %(action_ids)s::text[], %(command_hashes)s::bytea[], %(shard_ids)s::smallint[],
    %(first_positions)s::bigint[], %(event_counts)s::integer[], %(receipts)s::bytea[], %(commands)s::bytea[]) AS r
ORDER BY 2, 3
