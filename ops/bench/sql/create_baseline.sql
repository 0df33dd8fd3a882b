-- The rows that one accepted Command writes, in a schema of their own: Event, Receipt, entity, head.
CREATE SCHEMA baseline
    CREATE TABLE head (group_id text PRIMARY KEY, sequence bigint NOT NULL) WITH (fillfactor = 50)
    CREATE TABLE event_log (
    shard_id smallint NOT NULL, position bigint GENERATED ALWAYS AS IDENTITY, group_id text NOT NULL,
    sequence bigint NOT NULL, event_id text NOT NULL, accepted_at timestamptz NOT NULL, chain_hash bytea NOT NULL,
    event bytea NOT NULL, PRIMARY KEY (shard_id, position), UNIQUE (group_id, sequence), UNIQUE (event_id)
)
    CREATE TABLE receipt (
    actor_id text NOT NULL, action_id text NOT NULL, command_hash bytea NOT NULL, receipt bytea NOT NULL,
    command bytea NOT NULL, PRIMARY KEY (actor_id, action_id)
)
    CREATE TABLE entity (
    group_id text NOT NULL, kind text NOT NULL, entity_id text NOT NULL, revision bigint NOT NULL, body bytea NOT NULL,
    PRIMARY KEY (group_id, kind, entity_id)
)
    CREATE TABLE body (name text PRIMARY KEY, bytes bytea NOT NULL)
