-- Where this database stands: cluster and timeline beside those that its newest incarnation was founded on.
SELECT i.incarnation, i.system_identifier, i.timeline, c.system_identifier::text, weavehold_timeline()
FROM incarnation i
CROSS JOIN pg_control_system() c
WHERE i.organization_id = %(organization_id)s
ORDER BY i.ordinal DESC
LIMIT 1
