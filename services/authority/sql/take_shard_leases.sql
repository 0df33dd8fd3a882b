-- Free, expired, left by an earlier life of this instance, or written before the clock stepped back. The higher epoch fences whoever held them.
INSERT INTO shard_lease AS held (organization_id, shard_id, holder, epoch, expires_at)
SELECT s.organization_id, s.shard_id, %(holder)s, 1, weavehold_clock() + make_interval(secs => %(ttl_seconds)s)
FROM shard s
LEFT JOIN shard_lease l USING (organization_id, shard_id)
WHERE s.organization_id = %(organization_id)s
    AND (l.shard_id IS NULL OR l.expires_at <= weavehold_clock()
         OR l.expires_at > weavehold_clock() + make_interval(secs => 2 * %(ttl_seconds)s)
         OR (l.holder <> %(holder)s AND split_part(l.holder, '-', 1) = split_part(%(holder)s, '-', 1)))
ORDER BY s.shard_id
LIMIT %(most)s
ON CONFLICT (organization_id, shard_id) DO UPDATE
SET holder = excluded.holder, epoch = held.epoch + 1, expires_at = excluded.expires_at
WHERE held.expires_at <= weavehold_clock()
    OR held.expires_at > weavehold_clock() + make_interval(secs => 2 * %(ttl_seconds)s)
    OR (held.holder <> excluded.holder AND split_part(held.holder, '-', 1) = split_part(excluded.holder, '-', 1))
RETURNING shard_id, epoch
