SELECT shard_count FROM organization WHERE organization_id = %(organization_id)s
