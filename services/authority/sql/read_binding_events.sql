-- The Events of the registry's own history that bound some keys. First keys have none; an Agent's card is no such Event.
SELECT e.event
FROM signing_key k
JOIN event_log e ON e.organization_id = k.organization_id AND e.event_id = k.event_id
WHERE k.organization_id = %(organization_id)s AND k.key_id = ANY(%(key_ids)s::text[])
    AND e.group_id = %(registry_group)s
ORDER BY k.key_id
