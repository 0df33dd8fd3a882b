INSERT INTO organization (organization_id, name, shard_count)
VALUES (%(organization_id)s, %(name)s, %(shard_count)s)
