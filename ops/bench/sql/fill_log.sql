-- A log of Events of one size in 64 Groups, with bytes that do not compress.
INSERT INTO event_log (
    organization_id, shard_id, position, incarnation, group_id, sequence, event_id, kind, aggregate_revision,
    accepted_at, signing_hash, chain_hash, event
)
SELECT
    %(organization_id)s, %(shard_id)s, position, %(incarnation)s, 'urn:weavehold:bench:group:' || position %% 64,
    (position + 63) / 64, 'urn:uuid:' || gen_random_uuid(), 'message.posted', 1,
    weavehold_clock(), sha256(position::text::bytea), sha256(('chain' || position)::bytea),
    convert_to(left(
        (SELECT string_agg(encode(sha256((position || '/' || part)::bytea), 'hex'), '') FROM generate_series(1, %(bytes)s / 64) part),
        %(bytes)s
    ), 'UTF8')
FROM generate_series(1, %(events)s) position
