-- Append or keep the existing record: the batch has read and compared those that were there.
INSERT INTO admission (organization_id, signing_hash, admission_record_id, document_kind, key_id, principal_type,
    principal_id, trusted_accepted_at, accepted_by)
SELECT %(organization_id)s, a.*, %(accepted_by)s
FROM unnest(%(signing_hashes)s::bytea[], %(record_ids)s::text[], %(document_kinds)s::text[], %(key_ids)s::text[],
    %(principal_types)s::text[], %(principal_ids)s::text[], %(accepted_at)s::timestamptz[]) AS a
ORDER BY 2
ON CONFLICT DO NOTHING
