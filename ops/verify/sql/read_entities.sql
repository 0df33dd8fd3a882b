SELECT kind, entity_id, revision, body
FROM entity
WHERE organization_id = %(organization_id)s AND group_id = %(group_id)s
