-- migrate:up

-- The log: one row per Event, in shard order. It is the Group histories, the audit trail and the outbox at once.
CREATE TABLE event_log (
    organization_id    text NOT NULL,
    shard_id           smallint NOT NULL,
    position           bigint NOT NULL CHECK (position >= 1),
    incarnation        text NOT NULL,
    group_id           text NOT NULL,               -- '' for Organization-scoped facts
    sequence           bigint NOT NULL CHECK (sequence >= 1),
    event_id           text NOT NULL,
    kind               text NOT NULL,
    aggregate_revision bigint NOT NULL,
    accepted_at        timestamptz NOT NULL,
    signing_hash       bytea NOT NULL CHECK (octet_length(signing_hash) = 32),
    chain_hash         bytea NOT NULL CHECK (octet_length(chain_hash) = 32),
    event              bytea NOT NULL,              -- the canonical bytes that were signed, with their signature
    PRIMARY KEY (organization_id, shard_id, position),
    -- prevents two Events at one place of a Group's history
    UNIQUE (organization_id, group_id, sequence),
    -- prevents one Event ID for two facts
    UNIQUE (organization_id, event_id),
    FOREIGN KEY (organization_id, shard_id) REFERENCES shard
);

-- Events are immutable (MWP-EVT-005).
CREATE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN RAISE EXCEPTION '% rows are immutable', TG_TABLE_NAME USING ERRCODE = 'restrict_violation'; END $$;
CREATE TRIGGER event_log_is_immutable BEFORE UPDATE OR DELETE ON event_log
    FOR EACH ROW EXECUTE FUNCTION refuse_change();

-- The transactional outbox, visible as what it is: the only thing of the authority that a relay reads.
CREATE VIEW outbox AS
SELECT organization_id, shard_id, position, incarnation,
       'wh.' || subject_token(organization_id) || '.ev.' || shard_id || '.'
             || CASE WHEN shard_id = 0 THEN 'organization' ELSE subject_token(group_id) END AS subject,
       event_id, group_id, sequence, chain_hash, accepted_at, event
FROM event_log;

-- What each accepted Command got, under the name its sender gave it (MWP-EVT-003).
CREATE TABLE receipt (
    organization_id text NOT NULL,
    actor_id        text NOT NULL,
    action_id       text NOT NULL,
    command_hash    bytea NOT NULL CHECK (octet_length(command_hash) = 32),
    shard_id        smallint NOT NULL,
    first_position  bigint NOT NULL,
    event_count     integer NOT NULL CHECK (event_count >= 1),
    receipt         bytea NOT NULL,                 -- the reply, returned byte for byte
    command         bytea NOT NULL,                 -- the Command as received
    -- prevents two transitions under one Action ID
    PRIMARY KEY (organization_id, actor_id, action_id),
    FOREIGN KEY (organization_id, shard_id) REFERENCES shard
);

-- First admissions: append or return the existing one, per signing hash.
CREATE TABLE admission (
    organization_id     text NOT NULL REFERENCES organization,
    signing_hash        bytea NOT NULL CHECK (octet_length(signing_hash) = 32),
    admission_record_id text NOT NULL,
    document_kind       text NOT NULL,
    key_id              text NOT NULL,
    principal_type      text NOT NULL,
    principal_id        text NOT NULL,
    trusted_accepted_at timestamptz NOT NULL,
    accepted_by         text NOT NULL,
    PRIMARY KEY (organization_id, signing_hash)
);

-- Globally unique names of entities within the Organization.
CREATE TABLE identifier (
    organization_id text NOT NULL,
    identifier      text NOT NULL,
    entity_kind     text NOT NULL,
    group_id        text NOT NULL,
    -- prevents one name for two entities, also across shards
    PRIMARY KEY (organization_id, identifier)
);

-- Which shard holds a Group. Chosen at the root's creation, inherited by children, never changed.
CREATE TABLE mission_group (
    organization_id text NOT NULL,
    group_id        text NOT NULL,
    shard_id        smallint NOT NULL,
    PRIMARY KEY (organization_id, group_id),
    FOREIGN KEY (organization_id, shard_id) REFERENCES shard
);
CREATE INDEX mission_group_by_shard ON mission_group (organization_id, shard_id, group_id);

-- Current state of a Group, one row per entity: always equal to the fold of the Group's Events.
CREATE TABLE entity (
    organization_id text NOT NULL,
    group_id        text NOT NULL,
    kind            text NOT NULL,
    entity_id       text NOT NULL,
    revision        bigint NOT NULL,
    body            bytea NOT NULL,                 -- canonical JSON
    PRIMARY KEY (organization_id, group_id, kind, entity_id)
) WITH (fillfactor = 85);
-- finds all Groups of one Principal
CREATE INDEX entity_membership ON entity (organization_id, entity_id) WHERE kind = 'membership';

-- How far each Principal says it has durably applied a Group (MWP-WRK-030). Never deletes history.
CREATE TABLE acknowledgement (
    organization_id text NOT NULL,
    group_id        text NOT NULL,
    principal_id    text NOT NULL,
    incarnation     text NOT NULL,
    sequence        bigint NOT NULL CHECK (sequence >= 0),
    chain_hash      bytea NOT NULL,
    acknowledged_at timestamptz NOT NULL,
    PRIMARY KEY (organization_id, group_id, principal_id)
);

-- migrate:down
DROP VIEW outbox;
DROP TABLE acknowledgement, entity, mission_group, identifier, admission, receipt, event_log;
DROP FUNCTION refuse_change();
