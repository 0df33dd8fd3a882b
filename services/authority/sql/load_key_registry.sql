-- The whole registry of the Organization: a key is judged by what the others say, too.
SELECT key_id, principal_type, principal_id, public_key, valid_from, valid_until, revoked_at
FROM signing_key
WHERE organization_id = %(organization_id)s
