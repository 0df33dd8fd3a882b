-- All incarnations, oldest first, and where each shard's log ended when it was opened.
SELECT i.ordinal, i.incarnation, i.parent, i.epoch_base, i.reason, i.event_id, i.opened_at, i.abandoned,
    coalesce((SELECT json_agg(json_build_array(f.shard_id, f.position) ORDER BY f.shard_id)
              FROM incarnation_fork f
              WHERE f.organization_id = i.organization_id AND f.ordinal = i.ordinal), '[]'::json)
FROM incarnation i
WHERE i.organization_id = %(organization_id)s
ORDER BY i.ordinal
