SELECT r.actor_id, r.action_id, r.command_hash, r.shard_id, r.first_position, r.event_count, r.receipt, r.command,
    array(
        SELECT e.event_id
        FROM event_log e
        WHERE e.organization_id = r.organization_id AND e.shard_id = r.shard_id
            AND e.position >= r.first_position AND e.position < r.first_position + r.event_count
        ORDER BY e.position
    ),
    (SELECT e.event FROM event_log e
        WHERE e.organization_id = r.organization_id AND e.shard_id = r.shard_id AND e.position = r.first_position)
FROM receipt r
WHERE r.organization_id = %(organization_id)s AND (r.actor_id, r.action_id) > (%(actor_id)s, %(action_id)s)
ORDER BY r.actor_id, r.action_id
LIMIT %(rows_max)s
