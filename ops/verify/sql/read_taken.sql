SELECT identifier
FROM identifier
WHERE organization_id = %(organization_id)s AND identifier = ANY(%(identifiers)s::text[])
