INSERT INTO event_log (organization_id, incarnation, shard_id, position, group_id, sequence, event_id, kind,
    aggregate_revision, accepted_at, signing_hash, chain_hash, event)
SELECT %(organization_id)s, %(incarnation)s, e.*
FROM unnest(%(shard_ids)s::smallint[], %(positions)s::bigint[], %(group_ids)s::text[], %(sequences)s::bigint[],
    %(event_ids)s::text[], %(kinds)s::text[], %(aggregate_revisions)s::bigint[], %(accepted_at)s::timestamptz[],
    %(signing_hashes)s::bytea[], %(chain_hashes)s::bytea[], %(events)s::bytea[]) AS e
