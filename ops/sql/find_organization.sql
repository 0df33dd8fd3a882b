SELECT organization_id, name, shard_count FROM organization WHERE organization_id = %(organization_id)s
