INSERT INTO signing_key (organization_id, key_id, principal_type, principal_id, public_key, valid_from)
VALUES (%(organization_id)s, %(key_id)s, %(principal_type)s, %(principal_id)s, %(public_key)s, %(valid_from)s)
ON CONFLICT (organization_id, key_id) DO NOTHING
