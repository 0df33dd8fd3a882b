SELECT group_id, body
FROM entity
WHERE organization_id = %(organization_id)s AND kind = 'membership' AND entity_id = %(principal_id)s
    AND group_id = ANY(%(group_ids)s::text[])
