-- Bindings with the statements of their ends, in order, at one moment of the clock: all, or those of one key or Principal.
SELECT weavehold_clock(), k.key_id, k.principal_type, k.principal_id, k.public_key, k.valid_from, k.registered_at,
    k.event_id, v.sequence, v.recorded_at, v.valid_until, v.revoked_at, v.event_id
FROM signing_key k
LEFT JOIN key_validity v ON v.organization_id = k.organization_id AND v.key_id = k.key_id
WHERE k.organization_id = %(organization_id)s
    AND (%(name)s::text IS NULL OR k.key_id = %(name)s OR k.principal_id = %(name)s)
ORDER BY k.principal_id, k.registered_at, k.key_id, v.sequence
