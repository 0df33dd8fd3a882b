INSERT INTO mission_group (organization_id, group_id, shard_id)
SELECT %(organization_id)s, g.*
FROM unnest(%(group_ids)s::text[], %(shard_ids)s::smallint[]) AS g
