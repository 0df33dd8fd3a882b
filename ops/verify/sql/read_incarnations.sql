SELECT incarnation FROM incarnation WHERE organization_id = %(organization_id)s ORDER BY ordinal
