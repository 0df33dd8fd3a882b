SELECT group_id, max(sequence) FROM event_log
WHERE organization_id = %(organization_id)s AND group_id = ANY(%(group_ids)s)
GROUP BY group_id
