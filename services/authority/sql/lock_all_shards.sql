-- Every shard at once, for what concerns all histories: nobody accepts anything meanwhile (RULE-16).
SELECT shard_id
FROM shard
WHERE organization_id = %(organization_id)s
ORDER BY shard_id
FOR UPDATE
