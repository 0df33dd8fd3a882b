SELECT key_id, principal_type, principal_id, public_key, valid_from, event_id, registered_at
FROM signing_key
WHERE organization_id = %(organization_id)s
ORDER BY key_id
