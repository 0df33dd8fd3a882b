-- One function call per Command.
CREATE FUNCTION baseline.accept(number integer) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    named constant text := 'urn:weavehold:bench:group:' || number;
    name constant text := gen_random_uuid()::text;
    next bigint;
BEGIN
    UPDATE baseline.head SET sequence = sequence + 1 WHERE group_id = named RETURNING sequence INTO next;
    INSERT INTO baseline.event_log (shard_id, group_id, sequence, event_id, accepted_at, chain_hash, event)
    SELECT 1, named, next, 'urn:uuid:' || name, clock_timestamp(), sha256(name::bytea), bytes
    FROM baseline.body WHERE body.name = 'event';
    INSERT INTO baseline.entity SELECT named, 'message', 'urn:uuid:' || name, 1, bytes
    FROM baseline.body WHERE body.name = 'entity';
    INSERT INTO baseline.receipt
    SELECT 'urn:weavehold:human:mission-owner', 'urn:uuid:' || name, sha256(name::bytea), r.bytes, c.bytes
    FROM baseline.body r, baseline.body c WHERE r.name = 'receipt' AND c.name = 'command';
    RETURN next;
END $$
