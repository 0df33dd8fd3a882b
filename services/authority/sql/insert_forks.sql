-- Where every shard's log ends as the newest incarnation begins; run before its first Event is written.
INSERT INTO incarnation_fork (organization_id, ordinal, shard_id, position)
SELECT s.organization_id,
    (SELECT max(i.ordinal) FROM incarnation i WHERE i.organization_id = s.organization_id),
    s.shard_id,
    coalesce((SELECT max(e.position) FROM event_log e
              WHERE e.organization_id = s.organization_id AND e.shard_id = s.shard_id), 0)
FROM shard s
WHERE s.organization_id = %(organization_id)s
