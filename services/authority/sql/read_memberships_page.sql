-- The Memberships of one Principal over all Groups, ended ones included, in the order of Group IDs.
SELECT m.group_id, g.shard_id, m.body
FROM entity m
JOIN mission_group g ON g.organization_id = m.organization_id AND g.group_id = m.group_id
WHERE m.organization_id = %(organization_id)s AND m.entity_id = %(principal_id)s AND m.kind = 'membership'
    AND m.group_id > %(after_group_id)s
ORDER BY m.group_id
LIMIT %(limit)s
