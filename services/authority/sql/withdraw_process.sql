DELETE FROM authority_process WHERE organization_id = %(organization_id)s AND holder = %(holder)s
