-- The incarnation in which Events are accepted now, and what its epochs stand above.
SELECT incarnation, epoch_base, reason, event_id
FROM incarnation
WHERE organization_id = %(organization_id)s
ORDER BY ordinal DESC
LIMIT 1
