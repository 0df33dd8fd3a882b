-- The incarnation in which Events are accepted now, what its epochs stand above, and the life of the server that says so.
SELECT i.incarnation, i.epoch_base, i.reason, i.event_id, l.cluster, l.timeline, l.started_at
FROM incarnation i
CROSS JOIN server_life l
WHERE i.organization_id = %(organization_id)s
ORDER BY i.ordinal DESC
LIMIT 1
