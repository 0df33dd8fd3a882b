-- For each Group: the shard position of its last Event that stays invisible to the Agent, and of the last one that it
-- needs no more (invisible or acknowledged); 0 where there is none.
SELECT asked.group_id, coalesce(hidden.position, 0), coalesce(greatest(hidden.position, applied.position), 0)
FROM unnest(%(group_ids)s::text[], %(visibility_starts)s::bigint[]) AS asked (group_id, visibility_start)
LEFT JOIN LATERAL (
    SELECT e.position
    FROM event_log e
    WHERE e.organization_id = %(organization_id)s AND e.group_id = asked.group_id
        AND e.sequence = asked.visibility_start
    LIMIT 1
) hidden ON true
LEFT JOIN LATERAL (
    SELECT told.sequence
    FROM acknowledgement told
    WHERE told.organization_id = %(organization_id)s AND told.group_id = asked.group_id
        AND told.principal_id = %(principal_id)s
    LIMIT 1
) a ON true
LEFT JOIN LATERAL (
    SELECT e.position
    FROM event_log e
    WHERE e.organization_id = %(organization_id)s AND e.group_id = asked.group_id AND e.sequence = a.sequence
    LIMIT 1
) applied ON true
