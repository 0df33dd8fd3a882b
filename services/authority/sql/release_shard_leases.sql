-- Expired at once, so that another process takes them without waiting.
UPDATE shard_lease
SET expires_at = weavehold_clock()
WHERE organization_id = %(organization_id)s AND holder = %(holder)s AND shard_id = ANY(%(shard_ids)s::smallint[])
