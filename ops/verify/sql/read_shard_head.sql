SELECT coalesce(max(position), 0) FROM event_log WHERE organization_id = %(organization_id)s AND shard_id = %(shard_id)s
