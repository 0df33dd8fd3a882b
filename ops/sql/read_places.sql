-- For each asked place: the chain hash that the log has there (null beyond the head) and the Group's head (null without
-- such a Group).
SELECT asked.group_id, place.chain_hash, last.sequence
FROM unnest(%(group_ids)s::text[], %(sequences)s::bigint[]) AS asked (group_id, sequence)
LEFT JOIN LATERAL (
    SELECT e.chain_hash
    FROM event_log e
    WHERE e.organization_id = %(organization_id)s AND e.group_id = asked.group_id AND e.sequence = asked.sequence
    LIMIT 1
) place ON true
LEFT JOIN LATERAL (
    SELECT l.sequence
    FROM event_log l
    WHERE l.organization_id = %(organization_id)s AND l.group_id = asked.group_id
    ORDER BY l.sequence DESC
    LIMIT 1
) last ON true
