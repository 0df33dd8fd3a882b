-- Keys named by the batch, and any key that already holds a public key which the batch would bind.
SELECT key_id, principal_type, principal_id, public_key, valid_from, valid_until, revoked_at, statements
FROM registered_key
WHERE organization_id = %(organization_id)s
    AND (key_id = ANY(%(key_ids)s::text[]) OR public_key = ANY(%(public_keys)s::bytea[]))
