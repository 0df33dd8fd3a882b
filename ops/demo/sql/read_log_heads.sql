SELECT shard.shard_id, coalesce(max(log.position), 0)
FROM shard LEFT JOIN event_log AS log USING (organization_id, shard_id)
WHERE shard.organization_id = %(organization_id)s
GROUP BY shard.shard_id ORDER BY shard.shard_id;
