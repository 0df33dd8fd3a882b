-- What was stated about the ends of keys, each at its place of the key's history.
INSERT INTO key_validity (organization_id, key_id, sequence, valid_until, revoked_at, event_id, recorded_at)
SELECT %(organization_id)s, s.*, %(recorded_at)s
FROM unnest(%(key_ids)s::text[], %(sequences)s::integer[], %(valid_until)s::text[], %(revoked_at)s::text[],
    %(event_ids)s::text[]) AS s
ORDER BY 2, 3
