-- Every incarnation with the Event that opened it (none for the first), and the forks that it recorded.
SELECT i.incarnation, i.parent, i.epoch_base, i.reason, i.abandoned, e.event,
    coalesce((SELECT json_agg(json_build_array(f.shard_id, f.position))
              FROM incarnation_fork f
              WHERE f.organization_id = i.organization_id AND f.ordinal = i.ordinal), '[]'::json)
FROM incarnation i
LEFT JOIN event_log e ON e.organization_id = i.organization_id AND e.event_id = i.event_id
WHERE i.organization_id = %(organization_id)s
ORDER BY i.ordinal
