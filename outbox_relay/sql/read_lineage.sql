-- The incarnations of the Organization's history, oldest first.
SELECT incarnations FROM outbox_shard WHERE organization_id = %(organization_id)s AND shard_id = %(shard_id)s
