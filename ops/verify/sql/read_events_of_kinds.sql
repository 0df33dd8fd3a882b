-- Events of some kinds in a shard's log, in order.
SELECT position, event
FROM event_log
WHERE organization_id = %(organization_id)s AND shard_id = %(shard_id)s AND position > %(after)s
    AND kind = ANY(%(kinds)s::text[])
ORDER BY position
LIMIT %(rows_max)s
