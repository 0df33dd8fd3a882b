SELECT principal_type, principal_id, public_key, valid_from FROM signing_key
WHERE organization_id = %(organization_id)s AND key_id = %(key_id)s
