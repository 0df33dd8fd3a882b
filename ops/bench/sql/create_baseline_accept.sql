-- One function call per Command.
CREATE FUNCTION baseline.accept(number integer) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    named constant text := 'urn:weavehold:bench:group:' || number;
    fresh constant text := gen_random_uuid()::text;
    place bigint;
BEGIN
    UPDATE baseline.head SET sequence = sequence + 1 WHERE group_id = named RETURNING sequence INTO place;
    INSERT INTO baseline.event_log (shard_id, group_id, sequence, event_id, accepted_at, chain_hash, event)
    SELECT 1, named, place, 'urn:uuid:' || fresh, clock_timestamp(), sha256(fresh::bytea), bytes
    FROM baseline.body WHERE body.name = 'event';
    INSERT INTO baseline.entity SELECT named, 'message', 'urn:uuid:' || fresh, 1, bytes
    FROM baseline.body WHERE body.name = 'entity';
    INSERT INTO baseline.receipt
    SELECT 'urn:weavehold:human:mission-owner', 'urn:uuid:' || fresh, sha256(fresh::bytea), r.bytes, c.bytes
    FROM baseline.body r, baseline.body c WHERE r.name = 'receipt' AND c.name = 'command';
    RETURN place;
END $$
