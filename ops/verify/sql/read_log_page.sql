SELECT position, incarnation, group_id, sequence, event_id, kind, aggregate_revision, signing_hash, chain_hash, event,
    accepted_at
FROM event_log
WHERE organization_id = %(organization_id)s AND shard_id = %(shard_id)s AND position > %(after)s
ORDER BY position
LIMIT %(rows_max)s
