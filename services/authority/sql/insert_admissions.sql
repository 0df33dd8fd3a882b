-- The batch has read and judged the records that were there: one that came meanwhile fails the insert (TRU-4).
INSERT INTO admission (organization_id, signing_hash, admission_record_id, document_kind, key_id, principal_type,
    principal_id, trusted_accepted_at, accepted_by)
SELECT %(organization_id)s, a.*, %(accepted_at)s, %(accepted_by)s
FROM unnest(%(signing_hashes)s::bytea[], %(record_ids)s::text[], %(document_kinds)s::text[], %(key_ids)s::text[],
    %(principal_types)s::text[], %(principal_ids)s::text[]) AS a
ORDER BY 2
