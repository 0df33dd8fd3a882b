SELECT signing_hash, admission_record_id, document_kind, key_id, principal_type, principal_id, trusted_accepted_at,
    accepted_by
FROM admission
WHERE organization_id = %(organization_id)s AND signing_hash = ANY(%(signing_hashes)s::bytea[])
