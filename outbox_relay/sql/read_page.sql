-- The next rows of the log after a position, as many as fit both bounds; the first one in any case. Sizes are added
-- up before any Event is fetched from its place; subjects are left to the reader, who need not hash them row by row.
SELECT position, group_id, incarnation, event_id, event
FROM (
    SELECT position, group_id, incarnation, event_id, event,
           sum(octet_length(event)) OVER (ORDER BY position ROWS UNBOUNDED PRECEDING) AS bytes
    FROM outbox
    WHERE organization_id = %(organization_id)s AND shard_id = %(shard_id)s AND position > %(after)s
    ORDER BY position
    LIMIT %(rows_max)s
) page
WHERE bytes <= %(bytes_max)s OR position = %(after)s + 1
ORDER BY position
