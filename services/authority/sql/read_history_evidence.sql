-- Where this database stands: cluster and timeline beside those that its newest incarnation was founded on.
SELECT i.incarnation, i.system_identifier, i.timeline, l.cluster, l.timeline, l.started_at
FROM incarnation i
CROSS JOIN server_life l
WHERE i.organization_id = %(organization_id)s
ORDER BY i.ordinal DESC
LIMIT 1
