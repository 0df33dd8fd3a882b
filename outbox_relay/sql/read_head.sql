-- The last position of a shard's log, and the Event that stands at one position of it.
SELECT
    coalesce((
        SELECT position FROM outbox
        WHERE organization_id = %(organization_id)s AND shard_id = %(shard_id)s
        ORDER BY position DESC
        LIMIT 1
    ), 0) AS head,
    (
        SELECT event_id FROM outbox
        WHERE organization_id = %(organization_id)s AND shard_id = %(shard_id)s AND position = %(position)s
    ) AS event_id
