-- Every incarnation that this database knows of, those that were given up unseen too.
SELECT named.incarnation
FROM incarnation i
CROSS JOIN LATERAL unnest(i.abandoned || i.incarnation) AS named (incarnation)
WHERE i.organization_id = %(organization_id)s
