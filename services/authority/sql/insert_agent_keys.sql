-- Keys that a card binds anew; a card may name again the keys that its Agent already has.
INSERT INTO signing_key (organization_id, key_id, principal_type, principal_id, public_key, valid_from, valid_until,
    revoked_at)
SELECT %(organization_id)s, k.key_id, 'agent', k.principal_id, k.public_key, k.valid_from, k.valid_until,
    k.revoked_at
FROM unnest(%(key_ids)s::text[], %(principal_ids)s::text[], %(public_keys)s::bytea[], %(valid_from)s::text[],
    %(valid_until)s::text[], %(revoked_at)s::text[])
    AS k (key_id, principal_id, public_key, valid_from, valid_until, revoked_at)
ORDER BY k.key_id
ON CONFLICT (organization_id, key_id) DO NOTHING
