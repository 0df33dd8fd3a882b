-- migrate:up

-- A standby has no timeline of its own.
CREATE OR REPLACE FUNCTION weavehold_timeline() RETURNS integer
LANGUAGE sql VOLATILE PARALLEL UNSAFE AS
$$ SELECT CASE WHEN NOT pg_is_in_recovery()
               THEN ('x' || substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8))::bit(32)::integer END $$;

-- Whose word this is: one life of one server. Within it what was committed stays; beyond it that has to be examined.
CREATE VIEW server_life AS
SELECT c.system_identifier::text AS cluster, weavehold_timeline() AS timeline,
       pg_postmaster_start_time() AS started_at
FROM pg_control_system() c;

GRANT SELECT ON server_life TO weavehold_authority, weavehold_reader, weavehold_auditor;

-- migrate:down
-- Epochs that were granted above a base would be granted again without it.
DO $$
BEGIN
    IF EXISTS (SELECT FROM incarnation WHERE ordinal > 1) THEN
        RAISE EXCEPTION 'this history was resumed in a new incarnation: an earlier schema cannot hold its epochs'
            USING HINT = 'Restore a backup from before the incarnation was opened, or stay on this version.';
    END IF;
END $$;
DROP VIEW server_life;
CREATE OR REPLACE FUNCTION weavehold_timeline() RETURNS integer
LANGUAGE sql VOLATILE PARALLEL UNSAFE AS
$$ SELECT ('x' || substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8))::bit(32)::integer $$;
