SELECT group_id, shard_id
FROM mission_group
WHERE organization_id = %(organization_id)s AND group_id = ANY(%(group_ids)s::text[])
