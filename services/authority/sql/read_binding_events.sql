-- The Events of the registry's own history that bound some keys of one Principal. First keys have none.
SELECT e.event
FROM signing_key k
JOIN event_log e ON e.organization_id = k.organization_id AND e.event_id = k.event_id
WHERE k.organization_id = %(organization_id)s AND k.key_id = ANY(%(key_ids)s::text[])
    AND k.principal_type = %(principal_type)s AND k.principal_id = %(principal_id)s
    AND e.group_id = %(registry_group)s
ORDER BY k.key_id
