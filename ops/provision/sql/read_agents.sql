-- Everybody with an Agent Card.
SELECT agent_id FROM agent WHERE organization_id = %(organization_id)s ORDER BY agent_id
