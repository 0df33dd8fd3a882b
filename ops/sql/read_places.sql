-- For each asked place: the chain hash that the log has there (null beyond the head) and the Group's head (null without
-- such a Group).
SELECT asked.group_id, place.chain_hash, last.sequence
FROM unnest(%(group_ids)s::text[], %(sequences)s::bigint[]) AS asked (group_id, sequence)
LEFT JOIN event_log place ON place.organization_id = %(organization_id)s AND place.group_id = asked.group_id
    AND place.sequence = asked.sequence
LEFT JOIN LATERAL (
    SELECT l.sequence
    FROM event_log l
    WHERE l.organization_id = %(organization_id)s AND l.group_id = asked.group_id
    ORDER BY l.sequence DESC
    LIMIT 1
) last ON true
