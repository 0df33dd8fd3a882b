-- Every binding, or those of some keys, with every statement of its ends, in order.
SELECT k.key_id, k.principal_type, k.principal_id, k.public_key, k.valid_from,
    v.sequence, v.recorded_at, v.valid_until, v.revoked_at
FROM signing_key k
LEFT JOIN key_validity v ON v.organization_id = k.organization_id AND v.key_id = k.key_id
WHERE k.organization_id = %(organization_id)s AND k.key_id = ANY(coalesce(
    %(key_ids)s::text[],
    ARRAY(SELECT every.key_id FROM signing_key every WHERE every.organization_id = %(organization_id)s)
))
ORDER BY k.key_id, v.sequence
