-- The service's own key as it stands, the clock, and the moment of the last change of keys if that is later.
SELECT k.key_id, k.principal_type, k.principal_id, k.public_key, k.valid_from, k.valid_until, k.revoked_at,
    one.now, greatest(one.now, changed.at)
FROM (SELECT weavehold_clock() AS now) AS one
LEFT JOIN LATERAL (
    SELECT e.accepted_at AS at
    FROM event_log e
    WHERE e.organization_id = %(organization_id)s AND e.shard_id = 0
    ORDER BY e.position DESC
    LIMIT 1
) changed ON true
LEFT JOIN registered_key k ON k.organization_id = %(organization_id)s AND k.key_id = %(key_id)s
