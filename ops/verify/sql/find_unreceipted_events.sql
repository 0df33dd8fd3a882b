-- Events that claim a Command but stand in no Receipt.
SELECT e.group_id, e.sequence, e.event_id
FROM event_log e
WHERE e.organization_id = %(organization_id)s
    AND convert_from(e.event, 'UTF8') LIKE '%%"commandHash":"sha256:%%'
    AND NOT EXISTS (
        SELECT FROM receipt r
        WHERE r.organization_id = e.organization_id AND r.shard_id = e.shard_id
            AND e.position >= r.first_position AND e.position < r.first_position + r.event_count
    )
ORDER BY e.shard_id, e.position
LIMIT %(rows_max)s
