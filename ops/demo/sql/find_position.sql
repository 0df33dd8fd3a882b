SELECT shard_id, position FROM event_log
WHERE organization_id = %(organization_id)s AND event_id = %(event_id)s;
