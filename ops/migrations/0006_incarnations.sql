-- migrate:up

-- What an incarnation is founded on: its epochs stand above base × 2^20 (RULE-17). `abandoned` are those that the
-- broker held when it was opened and the database knew nothing of. The first one follows nothing and has base 0.
ALTER TABLE incarnation
    ADD COLUMN epoch_base bigint NOT NULL DEFAULT 0 CHECK (epoch_base >= 0),
    ADD COLUMN abandoned text[] NOT NULL DEFAULT '{}',
    ADD COLUMN reason text NOT NULL DEFAULT '',
    ADD COLUMN event_id text;
ALTER TABLE incarnation ALTER COLUMN epoch_base DROP DEFAULT, ALTER COLUMN reason DROP DEFAULT;
CREATE TRIGGER incarnation_is_immutable BEFORE UPDATE OR DELETE ON incarnation
    FOR EACH ROW EXECUTE FUNCTION refuse_change();

-- Where each shard's log ended when an incarnation was opened: up to there it shares its parent's history.
CREATE TABLE incarnation_fork (
    organization_id text NOT NULL,
    ordinal         integer NOT NULL,
    shard_id        smallint NOT NULL,
    position        bigint NOT NULL CHECK (position >= 0),
    PRIMARY KEY (organization_id, ordinal, shard_id),
    FOREIGN KEY (organization_id, ordinal) REFERENCES incarnation,
    FOREIGN KEY (organization_id, shard_id) REFERENCES shard
);
CREATE TRIGGER incarnation_fork_is_immutable BEFORE UPDATE OR DELETE ON incarnation_fork
    FOR EACH ROW EXECUTE FUNCTION refuse_change();

-- The timeline as it is now: a control file tells of a promotion only after its first checkpoint.
CREATE FUNCTION weavehold_timeline() RETURNS integer
LANGUAGE sql VOLATILE PARALLEL UNSAFE AS
$$ SELECT ('x' || substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8))::bit(32)::integer $$;

-- A relay takes a shard's subjects over from all that were before, those that the database had forgotten too.
CREATE OR REPLACE VIEW outbox_shard AS
SELECT s.organization_id, s.shard_id,
       ARRAY (SELECT named.incarnation
              FROM incarnation i
              CROSS JOIN LATERAL unnest(i.abandoned || i.incarnation) WITH ORDINALITY AS named (incarnation, place)
              WHERE i.organization_id = s.organization_id
              ORDER BY i.ordinal, named.place) AS incarnations
FROM shard s;

GRANT INSERT ON incarnation TO weavehold_authority;
GRANT SELECT, INSERT ON incarnation_fork TO weavehold_authority;
GRANT SELECT ON incarnation_fork TO weavehold_reader, weavehold_auditor;

-- migrate:down
CREATE OR REPLACE VIEW outbox_shard AS
SELECT s.organization_id, s.shard_id,
       ARRAY (SELECT i.incarnation FROM incarnation i
              WHERE i.organization_id = s.organization_id ORDER BY i.ordinal) AS incarnations
FROM shard s;
DROP FUNCTION weavehold_timeline();
DROP TABLE incarnation_fork;
DROP TRIGGER incarnation_is_immutable ON incarnation;
REVOKE INSERT ON incarnation FROM weavehold_authority;
ALTER TABLE incarnation DROP COLUMN event_id, DROP COLUMN reason, DROP COLUMN abandoned, DROP COLUMN epoch_base;
