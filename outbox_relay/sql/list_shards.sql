SELECT shard_id FROM outbox_shard WHERE organization_id = %(organization_id)s ORDER BY shard_id
