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

-- The timeline as it is now: a control file tells of a promotion only after its first checkpoint. A standby has none.
CREATE FUNCTION weavehold_timeline() RETURNS integer
LANGUAGE sql VOLATILE PARALLEL UNSAFE AS
$$ SELECT CASE WHEN NOT pg_is_in_recovery()
               THEN ('x' || substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8))::bit(32)::integer END $$;

-- Whose word this is: one life of one server. Within it what was committed stays; beyond it that has to be examined.
CREATE VIEW server_life AS
SELECT c.system_identifier::text AS cluster, weavehold_timeline() AS timeline,
       pg_postmaster_start_time() AS started_at
FROM pg_control_system() c;

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
GRANT SELECT ON server_life TO weavehold_authority;
GRANT SELECT ON incarnation_fork, server_life TO weavehold_reader, weavehold_auditor;

-- migrate:down
-- Epochs that were granted above a base would be granted again without it.
DO $$
BEGIN
    IF EXISTS (SELECT FROM incarnation WHERE ordinal > 1) THEN
        RAISE EXCEPTION 'this history was resumed in a new incarnation: an earlier schema cannot hold its epochs'
            USING HINT = 'Restore a backup from before the incarnation was opened, or stay on this version.';
    END IF;
END $$;
CREATE OR REPLACE VIEW outbox_shard AS
SELECT s.organization_id, s.shard_id,
       ARRAY (SELECT i.incarnation FROM incarnation i
              WHERE i.organization_id = s.organization_id ORDER BY i.ordinal) AS incarnations
FROM shard s;
DROP VIEW server_life;
DROP FUNCTION weavehold_timeline();
DROP TABLE incarnation_fork;
DROP TRIGGER incarnation_is_immutable ON incarnation;
REVOKE INSERT ON incarnation FROM weavehold_authority;
ALTER TABLE incarnation DROP COLUMN event_id, DROP COLUMN reason, DROP COLUMN abandoned, DROP COLUMN epoch_base;
