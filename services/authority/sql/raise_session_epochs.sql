UPDATE agent
SET session_epoch = s.session_epoch, session_event_id = s.event_id
FROM unnest(%(agent_ids)s::text[], %(session_epochs)s::bigint[], %(event_ids)s::text[])
    AS s (agent_id, session_epoch, event_id)
WHERE agent.organization_id = %(organization_id)s AND agent.agent_id = s.agent_id
