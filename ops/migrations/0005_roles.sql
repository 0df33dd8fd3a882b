-- migrate:up

-- What each process may do, as group roles that cannot log in. They belong to the whole server: another database may
-- have made them already, or an administrator, if whoever migrates may not make roles.
DO $$
DECLARE
    role text;
BEGIN
    FOREACH role IN ARRAY ARRAY ['weavehold_authority', 'weavehold_relay', 'weavehold_reader', 'weavehold_auditor']
    LOOP
        IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = role) THEN
            BEGIN
                EXECUTE format('CREATE ROLE %I NOLOGIN', role);
            EXCEPTION WHEN duplicate_object OR unique_violation THEN
                NULL;  -- made meanwhile by the migration of another database
            END;
        END IF;
    END LOOP;
END $$;

-- The authority appends to what is history, and changes only what is the present. Nobody may truncate anything.
GRANT SELECT ON organization, incarnation, shard, shard_lease, authority_process, signing_key, key_validity,
    registered_key, agent, session_challenge, authentication_failure, event_log, receipt, admission, identifier,
    mission_group, entity, acknowledgement TO weavehold_authority;
GRANT INSERT ON shard_lease, authority_process, signing_key, key_validity, agent, session_challenge,
    authentication_failure, event_log, receipt, admission, identifier, mission_group, entity, acknowledgement
    TO weavehold_authority;
GRANT UPDATE (holder, epoch, expires_at) ON shard_lease TO weavehold_authority;
GRANT UPDATE (expires_at) ON authority_process TO weavehold_authority;
GRANT UPDATE (card_version, card, session_epoch, session_event_id) ON agent TO weavehold_authority;
GRANT UPDATE (revision, body) ON entity TO weavehold_authority;
GRANT UPDATE (incarnation, sequence, chain_hash, acknowledged_at) ON acknowledgement TO weavehold_authority;
GRANT DELETE ON authority_process, session_challenge, authentication_failure TO weavehold_authority;

-- A row of `shard` is locked by whoever accepts, which takes the right to update it; the trigger keeps it from doing so.
GRANT UPDATE (shard_id) ON shard TO weavehold_authority;
CREATE TRIGGER shard_is_immutable BEFORE UPDATE OR DELETE ON shard
    FOR EACH ROW EXECUTE FUNCTION refuse_change();

-- A relay reads the outbox and writes what it keeps of itself.
GRANT SELECT ON outbox, outbox_shard, relay_position, relay_process TO weavehold_relay;
GRANT INSERT ON relay_position, relay_process TO weavehold_relay;
GRANT UPDATE (holder, epoch, expires_at, incarnation, position) ON relay_position TO weavehold_relay;
GRANT UPDATE (expires_at) ON relay_process TO weavehold_relay;
GRANT DELETE ON relay_process TO weavehold_relay;

-- A reader looks and verifies. Open challenges are nobody's to read, and why signatures failed is for auditors.
GRANT SELECT ON organization, incarnation, shard, shard_lease, authority_process, signing_key, key_validity,
    registered_key, agent, event_log, outbox, outbox_shard, receipt, admission, identifier, mission_group, entity,
    acknowledgement, relay_position, relay_process TO weavehold_reader, weavehold_auditor;
GRANT SELECT ON authentication_failure TO weavehold_auditor;

-- migrate:down
-- The roles stay: other databases of the server may use them.
DROP TRIGGER shard_is_immutable ON shard;
REVOKE ALL ON organization, incarnation, shard, shard_lease, authority_process, signing_key, key_validity,
    registered_key, agent, session_challenge, authentication_failure, event_log, outbox, outbox_shard, receipt,
    admission, identifier, mission_group, entity, acknowledgement, relay_position, relay_process
    FROM weavehold_authority, weavehold_relay, weavehold_reader, weavehold_auditor;
