-- The exclusion for every Group of these shards: locked in order, never updated (RULE-03).
SELECT shard_id
FROM shard
WHERE organization_id = %(organization_id)s AND shard_id = ANY(%(shard_ids)s::smallint[])
ORDER BY shard_id
FOR UPDATE
