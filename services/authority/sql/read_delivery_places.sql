-- For each Group: the shard position of its last Event that stays invisible to the Agent, and of the last one that it
-- needs no more (invisible or acknowledged); 0 where there is none.
SELECT asked.group_id, coalesce(hidden.position, 0), coalesce(greatest(hidden.position, applied.position), 0)
FROM unnest(%(group_ids)s::text[], %(visibility_starts)s::bigint[]) AS asked (group_id, visibility_start)
LEFT JOIN event_log hidden ON hidden.organization_id = %(organization_id)s AND hidden.group_id = asked.group_id
    AND hidden.sequence = asked.visibility_start
LEFT JOIN acknowledgement a ON a.organization_id = %(organization_id)s AND a.group_id = asked.group_id
    AND a.principal_id = %(principal_id)s
LEFT JOIN event_log applied ON applied.organization_id = %(organization_id)s AND applied.group_id = asked.group_id
    AND applied.sequence = a.sequence
