SELECT group_id FROM mission_group WHERE organization_id = %(organization_id)s AND shard_id = %(shard_id)s
