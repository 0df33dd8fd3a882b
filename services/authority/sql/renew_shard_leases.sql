UPDATE shard_lease
SET expires_at = weavehold_clock() + make_interval(secs => %(ttl_seconds)s)
WHERE organization_id = %(organization_id)s AND holder = %(holder)s
RETURNING shard_id, epoch
