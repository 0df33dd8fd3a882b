-- The newest authentication failures since a moment.
SELECT failure_id, failed_at, stage, reason, key_id, actor_id, action_id, document_sha256
FROM authentication_failure
WHERE organization_id = %(organization_id)s AND failed_at >= %(since)s
ORDER BY failure_id DESC
LIMIT %(rows_max)s
