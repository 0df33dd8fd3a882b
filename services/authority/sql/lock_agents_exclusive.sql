-- The same rows for the Organization shard's lane, which raises session epochs and replaces cards.
SELECT agent_id, session_epoch, session_event_id, card_version, card
FROM agent
WHERE organization_id = %(organization_id)s AND agent_id = ANY(%(agent_ids)s::text[])
ORDER BY agent_id
FOR UPDATE
