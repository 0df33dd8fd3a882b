-- The Events of a Group after a sequence, in order: at most so many, and so many bytes unless the first alone has more.
-- Where the page ends is found on sizes alone, before any Event is read.
SELECT sequence, chain_hash, event
FROM event_log
WHERE organization_id = %(organization_id)s AND group_id = %(group_id)s AND sequence > %(after)s AND sequence <= (
    SELECT max(sequence)
    FROM (
        SELECT sequence, sum(size) OVER (ORDER BY sequence) AS bytes_so_far
        FROM (
            SELECT sequence, octet_length(event) AS size
            FROM event_log
            WHERE organization_id = %(organization_id)s AND group_id = %(group_id)s AND sequence > %(after)s
            ORDER BY sequence
            LIMIT %(limit_events)s
        ) within_count
    ) counted
    WHERE bytes_so_far <= %(limit_bytes)s OR sequence = %(after)s::bigint + 1
)
ORDER BY sequence
