SELECT count(*) FROM receipt WHERE organization_id = %(organization_id)s;
