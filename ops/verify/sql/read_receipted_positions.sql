SELECT first_position, event_count FROM receipt WHERE organization_id = %(organization_id)s AND shard_id = %(shard_id)s
