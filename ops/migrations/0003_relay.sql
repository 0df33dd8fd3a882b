-- migrate:up

-- One publisher per shard: lease and last known position in one row, written about once a second. The exact
-- position is the stream's last sequence.
CREATE TABLE relay_position (
    organization_id text NOT NULL,
    shard_id        smallint NOT NULL,
    holder          text NOT NULL,
    epoch           bigint NOT NULL CHECK (epoch >= 1),
    expires_at      timestamptz NOT NULL,
    incarnation     text NOT NULL,
    position        bigint NOT NULL CHECK (position >= 0),
    PRIMARY KEY (organization_id, shard_id),
    FOREIGN KEY (organization_id, shard_id) REFERENCES shard
) WITH (fillfactor = 50);

-- Live relay processes, so that shards spread evenly over them.
CREATE TABLE relay_process (
    organization_id text NOT NULL REFERENCES organization,
    holder          text NOT NULL,
    expires_at      timestamptz NOT NULL,
    PRIMARY KEY (organization_id, holder)
) WITH (fillfactor = 50);

-- Which logs there are to publish, and the incarnations of the history, oldest first. With `outbox` all that a
-- relay reads of the authority.
CREATE VIEW outbox_shard AS
SELECT s.organization_id, s.shard_id,
       ARRAY (SELECT i.incarnation FROM incarnation i
              WHERE i.organization_id = s.organization_id ORDER BY i.ordinal) AS incarnations
FROM shard s;

-- migrate:down
DROP VIEW outbox_shard;
DROP TABLE relay_process, relay_position;
