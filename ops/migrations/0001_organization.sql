-- migrate:up

-- The one clock of the system. Every decision about leases and freshness reads it, and nothing else does.
CREATE FUNCTION weavehold_clock() RETURNS timestamptz
LANGUAGE sql VOLATILE PARALLEL UNSAFE AS $$ SELECT clock_timestamp() $$;

-- The subject-safe name of an identifier; the same as contracts.identifiers.token.
CREATE FUNCTION subject_token(identifier text) RETURNS text
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS
$$ SELECT substr(encode(sha256(convert_to(identifier, 'UTF8')), 'hex'), 1, 32) $$;

CREATE TABLE organization (
    organization_id text PRIMARY KEY,
    name            text NOT NULL,
    shard_count     smallint NOT NULL CHECK (shard_count BETWEEN 1 AND 1024),
    created_at      timestamptz NOT NULL DEFAULT weavehold_clock()
);

-- The identity of one history. A restore or a failover opens the next one.
CREATE TABLE incarnation (
    organization_id   text NOT NULL REFERENCES organization,
    ordinal           integer NOT NULL CHECK (ordinal >= 1),
    incarnation       text NOT NULL CHECK (incarnation ~ '^[0-9a-f]{32}$'),
    parent            text,
    system_identifier text NOT NULL,
    timeline          integer NOT NULL,
    opened_at         timestamptz NOT NULL DEFAULT weavehold_clock(),
    PRIMARY KEY (organization_id, ordinal),
    UNIQUE (organization_id, incarnation)
);

-- One row per shard: locked FOR UPDATE by the accepting transaction, never updated. Shard 0 is the Organization's.
CREATE TABLE shard (
    organization_id text NOT NULL REFERENCES organization,
    shard_id        smallint NOT NULL CHECK (shard_id >= 0),
    PRIMARY KEY (organization_id, shard_id)
);

-- Who may commit to a shard now. The epoch rises at each change of holder and fences the holder before it.
CREATE TABLE shard_lease (
    organization_id text NOT NULL,
    shard_id        smallint NOT NULL,
    holder          text NOT NULL,
    epoch           bigint NOT NULL CHECK (epoch >= 1),
    expires_at      timestamptz NOT NULL,
    PRIMARY KEY (organization_id, shard_id),
    FOREIGN KEY (organization_id, shard_id) REFERENCES shard
);

-- Live authority processes, so that shards spread evenly over them.
CREATE TABLE authority_process (
    organization_id text NOT NULL REFERENCES organization,
    holder          text NOT NULL,
    expires_at      timestamptz NOT NULL,
    PRIMARY KEY (organization_id, holder)
);

-- Immutable bindings of keys to Principals. Boundaries of validity only ever move earlier.
CREATE TABLE signing_key (
    organization_id text NOT NULL REFERENCES organization,
    key_id          text NOT NULL,
    principal_type  text NOT NULL CHECK (principal_type IN ('agent', 'human', 'service')),
    principal_id    text NOT NULL,
    public_key      bytea NOT NULL CHECK (octet_length(public_key) = 32),
    valid_from      text NOT NULL,
    valid_until     text,
    revoked_at      text,
    registered_at   timestamptz NOT NULL DEFAULT weavehold_clock(),
    PRIMARY KEY (organization_id, key_id),
    -- prevents aliasing: one public key under two key IDs or Principals
    UNIQUE (organization_id, public_key)
);

-- One row per Agent, locked FOR SHARE by every lane that decides for the Agent and exclusively by session opening.
CREATE TABLE agent (
    organization_id  text NOT NULL REFERENCES organization,
    agent_id         text NOT NULL,
    card_version     bigint NOT NULL CHECK (card_version >= 1),
    card             bytea NOT NULL,
    session_epoch    bigint NOT NULL DEFAULT 0 CHECK (session_epoch >= 0),
    session_event_id text,
    PRIMARY KEY (organization_id, agent_id)
);

-- Open challenges of the session handshake: any authority process may answer the second step. Each is used once.
CREATE TABLE session_challenge (
    organization_id text NOT NULL REFERENCES organization,
    challenge_id    text NOT NULL,
    agent_id        text NOT NULL,
    key_id          text NOT NULL,
    client_nonce    text NOT NULL,
    server_nonce    text NOT NULL,
    challenge       bytea NOT NULL,
    expires_at      timestamptz NOT NULL,
    PRIMARY KEY (organization_id, challenge_id)
);

-- Protected audit of authentication failures: the stage and reason that the wire never tells.
CREATE TABLE authentication_failure (
    organization_id text NOT NULL REFERENCES organization,
    failure_id      bigint GENERATED ALWAYS AS IDENTITY,
    failed_at       timestamptz NOT NULL DEFAULT weavehold_clock(),
    stage           text NOT NULL,
    reason          text NOT NULL,
    key_id          text,
    actor_id        text,
    action_id       text,
    document_sha256 bytea NOT NULL,
    PRIMARY KEY (organization_id, failure_id)
);

-- migrate:down
DROP TABLE authentication_failure, session_challenge, agent, signing_key, authority_process, shard_lease, shard,
    incarnation, organization;
DROP FUNCTION subject_token(text);
DROP FUNCTION weavehold_clock();
