SELECT agent_id, session_epoch, card_version, card FROM agent WHERE organization_id = %(organization_id)s
