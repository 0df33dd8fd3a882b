SELECT key_id, sequence, recorded_at, valid_until, revoked_at, event_id
FROM key_validity
WHERE organization_id = %(organization_id)s
ORDER BY key_id, sequence
