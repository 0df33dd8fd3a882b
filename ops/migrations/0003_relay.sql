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

-- migrate:down
DROP TABLE relay_position;
