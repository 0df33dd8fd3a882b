SELECT signing_hash
FROM admission
WHERE organization_id = %(organization_id)s AND signing_hash = ANY(%(signing_hashes)s::bytea[])
