DELETE FROM authority_process
WHERE organization_id = %(organization_id)s AND expires_at < weavehold_clock() - interval '1 minute'
