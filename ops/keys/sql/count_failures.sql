-- Authentication failures since a moment, counted by stage, reason and key; the most frequent first.
SELECT stage, reason, key_id, count(*), min(failed_at), max(failed_at)
FROM authentication_failure
WHERE organization_id = %(organization_id)s AND failed_at >= %(since)s
GROUP BY stage, reason, key_id
ORDER BY count(*) DESC, max(failed_at) DESC, stage, reason, key_id
LIMIT %(rows_max)s
