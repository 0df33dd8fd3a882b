-- The Events of a shard after a position, in order: at most so many, and so many bytes unless the first alone has more.
-- Where the page ends is found on sizes alone, before any Event is read.
SELECT position, chain_hash, event
FROM event_log
WHERE organization_id = %(organization_id)s AND shard_id = %(shard_id)s AND position > %(after)s AND position <= (
    SELECT max(position)
    FROM (
        SELECT position, sum(size) OVER (ORDER BY position) AS bytes_so_far
        FROM (
            SELECT position, octet_length(event) AS size
            FROM event_log
            WHERE organization_id = %(organization_id)s AND shard_id = %(shard_id)s AND position > %(after)s
            ORDER BY position
            LIMIT %(limit_events)s
        ) within_count
    ) counted
    WHERE bytes_so_far <= %(limit_bytes)s OR position = %(after)s::bigint + 1
)
ORDER BY position
