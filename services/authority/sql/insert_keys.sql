-- Bindings: a key ID or a public key that is bound already fails the insert.
INSERT INTO signing_key (organization_id, key_id, principal_type, principal_id, public_key, valid_from, event_id)
SELECT %(organization_id)s, k.*
FROM unnest(%(key_ids)s::text[], %(principal_types)s::text[], %(principal_ids)s::text[], %(public_keys)s::bytea[],
    %(valid_from)s::text[], %(event_ids)s::text[]) AS k
ORDER BY 2
