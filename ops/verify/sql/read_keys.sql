SELECT key_id, principal_id, public_key FROM signing_key WHERE organization_id = %(organization_id)s
