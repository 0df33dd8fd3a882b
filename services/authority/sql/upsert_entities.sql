INSERT INTO entity (organization_id, group_id, kind, entity_id, revision, body)
SELECT %(organization_id)s, e.*
FROM unnest(%(group_ids)s::text[], %(kinds)s::text[], %(entity_ids)s::text[], %(revisions)s::bigint[],
    %(bodies)s::bytea[]) AS e
ON CONFLICT (organization_id, group_id, kind, entity_id)
DO UPDATE SET revision = excluded.revision, body = excluded.body
