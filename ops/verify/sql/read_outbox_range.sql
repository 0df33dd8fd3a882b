SELECT position, subject, event
FROM outbox
WHERE organization_id = %(organization_id)s AND shard_id = %(shard_id)s
    AND position >= %(first)s AND position <= %(last)s
ORDER BY position
