-- Who may commit to each shard now, and where its log ends.
SELECT s.shard_id, l.holder, l.epoch, coalesce(last.position, 0), last.accepted_at
FROM shard s
LEFT JOIN shard_lease l USING (organization_id, shard_id)
LEFT JOIN LATERAL (
    SELECT e.position, e.accepted_at
    FROM event_log e
    WHERE e.organization_id = s.organization_id AND e.shard_id = s.shard_id
    ORDER BY e.position DESC
    LIMIT 1
) last ON true
WHERE s.organization_id = %(organization_id)s AND s.shard_id = ANY(%(shard_ids)s::smallint[])
