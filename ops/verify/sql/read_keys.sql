-- Every key with its boundaries as they stand.
SELECT key_id, principal_type, principal_id, public_key, valid_from, valid_until, revoked_at
FROM registered_key
WHERE organization_id = %(organization_id)s
