-- The service's own key as it stands, the clock, and the moment of the last change of keys if that is later.
SELECT k.key_id, k.principal_type, k.principal_id, k.public_key, k.valid_from, k.valid_until, k.revoked_at,
    one.now, greatest(one.now, key_moment(%(organization_id)s))
FROM (SELECT weavehold_clock() AS now) AS one
LEFT JOIN registered_key k ON k.organization_id = %(organization_id)s AND k.key_id = %(key_id)s
