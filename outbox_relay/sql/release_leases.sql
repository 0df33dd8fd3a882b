-- Over at once, so that another relay takes them without waiting; the position stays on record.
UPDATE relay_position held
SET expires_at = weavehold_clock(), incarnation = mine.incarnation, position = mine.position
FROM unnest(%(shard_ids)s::smallint[], %(epochs)s::bigint[], %(incarnations)s::text[], %(positions)s::bigint[])
    AS mine (shard_id, epoch, incarnation, position)
WHERE held.organization_id = %(organization_id)s AND held.shard_id = mine.shard_id
    AND held.holder = %(holder)s AND held.epoch = mine.epoch AND held.expires_at > weavehold_clock()
