-- migrate:up

-- What was stated about the ends of keys, in order: each row holds both ends as they stand from then on. They only ever
-- move earlier and are never taken back; whoever appends holds the Organization's key lock exclusively.
CREATE TABLE key_validity (
    organization_id text NOT NULL,
    key_id          text NOT NULL,
    sequence        integer NOT NULL CHECK (sequence >= 1),
    recorded_at     timestamptz NOT NULL,
    valid_until     text,
    revoked_at      text,
    -- the Event that states it; none for what stood before Events stated it
    event_id        text,
    -- prevents two statements at one place of a key's history
    PRIMARY KEY (organization_id, key_id, sequence),
    FOREIGN KEY (organization_id, key_id) REFERENCES signing_key,
    CHECK (num_nonnulls(valid_until, revoked_at) >= 1)
);

INSERT INTO key_validity (organization_id, key_id, sequence, recorded_at, valid_until, revoked_at)
SELECT organization_id, key_id, 1, registered_at, valid_until, revoked_at
FROM signing_key
WHERE num_nonnulls(valid_until, revoked_at) >= 1;

ALTER TABLE signing_key DROP COLUMN valid_until, DROP COLUMN revoked_at,
    -- the Event that bound it; none for the first keys
    ADD COLUMN event_id text;

-- A key with its ends as they stand now, and how many statements there are of them.
CREATE VIEW registered_key AS
SELECT k.organization_id, k.key_id, k.principal_type, k.principal_id, k.public_key, k.valid_from,
       v.valid_until, v.revoked_at, coalesce(v.sequence, 0) AS statements, k.registered_at, k.event_id
FROM signing_key k
LEFT JOIN LATERAL (
    SELECT s.valid_until, s.revoked_at, s.sequence
    FROM key_validity s
    WHERE s.organization_id = k.organization_id AND s.key_id = k.key_id
    ORDER BY s.sequence DESC
    LIMIT 1
) v ON true;

-- When the Organization shard last accepted: keys are changed there, so no key is judged as of an earlier moment, even
-- if the clock steps back.
CREATE FUNCTION key_moment(organization text) RETURNS timestamptz LANGUAGE sql STABLE AS $$
    SELECT e.accepted_at
    FROM event_log e
    WHERE e.organization_id = organization AND e.shard_id = 0
    ORDER BY e.position DESC
    LIMIT 1
$$;

-- Bindings, statements and first admissions are append-only (TRU-2, TRU-4).
CREATE TRIGGER signing_key_is_immutable BEFORE UPDATE OR DELETE ON signing_key
    FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER key_validity_is_immutable BEFORE UPDATE OR DELETE ON key_validity
    FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER admission_is_immutable BEFORE UPDATE OR DELETE ON admission
    FOR EACH ROW EXECUTE FUNCTION refuse_change();

-- The registry's history bears the Organization's own name, so no Mission may take that name for its Group.
INSERT INTO identifier (organization_id, identifier, entity_kind, group_id)
SELECT organization_id, organization_id, 'key_registry', organization_id FROM organization
ON CONFLICT DO NOTHING;

-- migrate:down
-- Which Event bound a key and which stated its end is written nowhere else: without it the registry would never again
-- agree with its history. Nobody states anything between this look and the end.
LOCK TABLE signing_key, key_validity IN ACCESS EXCLUSIVE MODE;
DO $$
DECLARE
    bindings bigint := (SELECT count(*) FROM signing_key WHERE event_id IS NOT NULL);
    ends     bigint := (SELECT count(*) FROM key_validity WHERE event_id IS NOT NULL);
BEGIN
    IF bindings + ends > 0 THEN
        RAISE EXCEPTION 'there is no way back: % keys were bound and % ends of keys stated by Events, which would be '
            'forgotten for good. Keep this version, or restore a backup from before it', bindings, ends;
    END IF;
END
$$;
DELETE FROM identifier WHERE entity_kind = 'key_registry';
DROP TRIGGER admission_is_immutable ON admission;
DROP TRIGGER signing_key_is_immutable ON signing_key;
DROP FUNCTION key_moment(text);
DROP VIEW registered_key;
ALTER TABLE signing_key DROP COLUMN event_id, ADD COLUMN valid_until text, ADD COLUMN revoked_at text;
UPDATE signing_key k SET valid_until = v.valid_until, revoked_at = v.revoked_at
FROM key_validity v
WHERE v.organization_id = k.organization_id AND v.key_id = k.key_id
    AND NOT EXISTS (
        SELECT FROM key_validity later
        WHERE later.organization_id = v.organization_id AND later.key_id = v.key_id AND later.sequence > v.sequence
    );
DROP TABLE key_validity;
