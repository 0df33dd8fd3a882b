SELECT group_id, principal_id, incarnation, sequence, chain_hash, acknowledged_at
FROM acknowledgement
WHERE organization_id = %(organization_id)s AND group_id = ANY(%(group_ids)s::text[])
ORDER BY group_id, principal_id
