-- A Command as it was received.
SELECT command FROM receipt
WHERE organization_id = %(organization_id)s AND actor_id = %(actor_id)s AND action_id = %(action_id)s
