-- Every Group that has Events or state, so that neither side can miss the other.
SELECT group_id
FROM (
    SELECT group_id FROM mission_group WHERE organization_id = %(organization_id)s AND group_id > %(after)s
    UNION
    SELECT group_id FROM entity WHERE organization_id = %(organization_id)s AND group_id > %(after)s
    UNION
    SELECT group_id FROM event_log WHERE organization_id = %(organization_id)s AND group_id > %(after)s
        AND sequence = 1
) AS named
ORDER BY group_id
LIMIT %(rows_max)s
