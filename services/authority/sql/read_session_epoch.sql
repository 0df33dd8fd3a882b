SELECT session_epoch
FROM agent
WHERE organization_id = %(organization_id)s AND agent_id = %(agent_id)s
