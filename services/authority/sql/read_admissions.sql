SELECT signing_hash, document_kind, key_id, principal_type, principal_id
FROM admission
WHERE organization_id = %(organization_id)s AND signing_hash = ANY(%(signing_hashes)s::bytea[])
