SELECT sequence, event, chain_hash
FROM event_log
WHERE organization_id = %(organization_id)s AND group_id = %(group_id)s AND sequence > %(after)s
ORDER BY sequence
LIMIT %(rows_max)s
