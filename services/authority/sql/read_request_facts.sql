-- What a signed read is judged by: the clock, the Agent's current session (0 for none), the signing key as it stands now.
SELECT weavehold_clock(), coalesce(a.session_epoch, 0), k.key_id, k.principal_type, k.principal_id, k.public_key,
    k.valid_from, k.valid_until, k.revoked_at
FROM (VALUES (1)) AS one (row)
LEFT JOIN registered_key k ON k.organization_id = %(organization_id)s AND k.key_id = %(key_id)s
LEFT JOIN agent a ON a.organization_id = %(organization_id)s AND a.agent_id = %(actor_id)s
