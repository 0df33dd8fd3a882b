DELETE FROM session_challenge
WHERE organization_id = %(organization_id)s AND expires_at <= weavehold_clock()
