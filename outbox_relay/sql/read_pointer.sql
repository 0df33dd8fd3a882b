-- What a pointer says of the Event at one position.
SELECT event_id, group_id, sequence, chain_hash
FROM outbox
WHERE organization_id = %(organization_id)s AND shard_id = %(shard_id)s AND position = %(position)s
