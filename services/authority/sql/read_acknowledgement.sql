-- Whether the log has the reported place, and what the Principal has acknowledged by now (null for nothing).
SELECT place.sequence IS NOT NULL, a.incarnation, a.sequence, a.chain_hash
FROM (VALUES (1)) AS one (row)
LEFT JOIN event_log place ON place.organization_id = %(organization_id)s AND place.group_id = %(group_id)s
    AND place.sequence = %(sequence)s AND place.incarnation = %(incarnation)s AND place.chain_hash = %(chain_hash)s
LEFT JOIN acknowledgement a ON a.organization_id = %(organization_id)s AND a.group_id = %(group_id)s
    AND a.principal_id = %(principal_id)s
