-- What a signed read is judged by: the clock, the signing key as it stands now, and the Agent's current session.
SELECT weavehold_clock(), k.valid_from, k.valid_until, k.revoked_at, coalesce(a.session_epoch, 0)
FROM (VALUES (1)) AS one (row)
LEFT JOIN signing_key k ON k.organization_id = %(organization_id)s AND k.key_id = %(key_id)s
LEFT JOIN agent a ON a.organization_id = %(organization_id)s AND a.agent_id = %(actor_id)s
