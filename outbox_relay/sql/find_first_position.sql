-- Where a new stream starts: the lowest position of the log whose Event is younger than the retention, by halving
-- the range, since acceptance times never fall along the log. One past the head when there is none.
WITH RECURSIVE bound AS (
    SELECT coalesce(min(position), 1) AS low, coalesce(max(position), 0) + 1 AS high
    FROM outbox
    WHERE organization_id = %(organization_id)s AND shard_id = %(shard_id)s
), halving (low, high) AS (
    SELECT low, high FROM bound
    UNION ALL
    SELECT
        CASE WHEN middle.too_old THEN middle.position + 1 ELSE halving.low END,
        CASE WHEN middle.too_old THEN halving.high ELSE middle.position END
    FROM halving
    CROSS JOIN LATERAL (
        SELECT position, accepted_at < weavehold_clock() - make_interval(secs => %(retention_seconds)s) AS too_old
        FROM outbox
        WHERE organization_id = %(organization_id)s AND shard_id = %(shard_id)s
            AND position = (halving.low + halving.high) / 2
    ) middle
    WHERE halving.low < halving.high AND %(retention_seconds)s > 0
)
SELECT max(low) FROM halving
