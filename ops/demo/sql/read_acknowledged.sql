-- How far each member of some Groups says that it has applied them.
SELECT group_id, principal_id, sequence FROM acknowledgement
WHERE organization_id = %(organization_id)s AND group_id = ANY (%(group_ids)s);
