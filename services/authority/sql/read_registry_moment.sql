-- When the Organization shard last accepted: keys are changed there, so no key is judged as of an earlier moment.
SELECT accepted_at
FROM event_log
WHERE organization_id = %(organization_id)s AND shard_id = 0
ORDER BY position DESC
LIMIT 1
