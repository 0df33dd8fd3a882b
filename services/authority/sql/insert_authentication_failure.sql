INSERT INTO authentication_failure (organization_id, stage, reason, key_id, actor_id, action_id, document_sha256)
VALUES (%(organization_id)s, %(stage)s, %(reason)s, %(key_id)s, %(actor_id)s, %(action_id)s, %(document_sha256)s)
