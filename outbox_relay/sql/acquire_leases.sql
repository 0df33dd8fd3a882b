-- Shards whose lease is free, over, or left by an earlier life of this instance. The higher epoch fences whoever held
-- them before; of two takers of one shard the second waits for the first one's row and then finds it taken.
INSERT INTO relay_position AS held (organization_id, shard_id, holder, epoch, expires_at, incarnation, position)
SELECT s.organization_id, s.shard_id, %(holder)s, 1,
       weavehold_clock() + make_interval(secs => %(lease_seconds)s),
       s.incarnations[cardinality(s.incarnations)], 0
FROM outbox_shard s
LEFT JOIN relay_position p USING (organization_id, shard_id)
WHERE s.organization_id = %(organization_id)s AND cardinality(s.incarnations) > 0
    AND (p.shard_id IS NULL OR p.expires_at <= weavehold_clock()
         OR (p.holder <> %(holder)s AND split_part(p.holder, '-', 1) = split_part(%(holder)s, '-', 1)))
ORDER BY s.shard_id
LIMIT %(shards_max)s
ON CONFLICT (organization_id, shard_id) DO UPDATE
SET holder = excluded.holder,
    epoch = held.epoch + 1,
    expires_at = weavehold_clock() + make_interval(secs => %(lease_seconds)s)
WHERE held.expires_at <= weavehold_clock()
    OR (held.holder <> excluded.holder AND split_part(held.holder, '-', 1) = split_part(excluded.holder, '-', 1))
RETURNING shard_id, epoch, incarnation, position
