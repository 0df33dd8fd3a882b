SELECT principal_type, principal_id, public_key FROM signing_key
WHERE organization_id = %(organization_id)s AND key_id = %(key_id)s
