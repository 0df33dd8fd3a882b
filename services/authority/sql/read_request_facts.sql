-- What a signed read is judged by: the clock, the moment as of which keys are judged (though the clock step back, never
-- before their last change), the Agent's current session (0 for none), the signing key as it stands now.
SELECT one.now, greatest(one.now, key_moment(%(organization_id)s)), coalesce(a.session_epoch, 0), k.key_id, k.principal_type, k.principal_id,
    k.public_key, k.valid_from, k.valid_until, k.revoked_at
FROM (SELECT weavehold_clock() AS now) AS one
LEFT JOIN registered_key k ON k.organization_id = %(organization_id)s AND k.key_id = %(key_id)s
LEFT JOIN agent a ON a.organization_id = %(organization_id)s AND a.agent_id = %(actor_id)s
