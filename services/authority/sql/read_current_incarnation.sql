SELECT i.incarnation, o.shard_count
FROM incarnation i
JOIN organization o USING (organization_id)
WHERE i.organization_id = %(organization_id)s
ORDER BY i.ordinal DESC
LIMIT 1
