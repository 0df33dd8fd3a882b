SELECT shard_id, holder, epoch
FROM shard_lease
WHERE organization_id = %(organization_id)s AND expires_at > weavehold_clock()
