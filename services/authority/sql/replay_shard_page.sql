-- The Events of a shard after a position, in order: at most so many, and so many bytes unless the first alone has more.
SELECT position, chain_hash, event
FROM (
    SELECT position, chain_hash, event, sum(octet_length(event)) OVER (ORDER BY position) AS bytes_so_far
    FROM (
        SELECT position, chain_hash, event
        FROM event_log
        WHERE organization_id = %(organization_id)s AND shard_id = %(shard_id)s AND position > %(after)s
        ORDER BY position
        LIMIT %(limit_events)s
    ) within_count
) counted
WHERE bytes_so_far <= %(limit_bytes)s OR position = %(after)s::bigint + 1
ORDER BY position
