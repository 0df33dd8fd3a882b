-- The newest applied Events of each Group, in a ring of slots, so that remembering needs no deletion.
CREATE TABLE IF NOT EXISTS projection_applied (
    group_id   TEXT NOT NULL,
    slot       BIGINT NOT NULL,
    sequence   BIGINT NOT NULL,
    chain_hash BLOB NOT NULL CHECK (length(chain_hash) = 32),
    event_id   TEXT NOT NULL,
    PRIMARY KEY (group_id, slot)
) WITHOUT ROWID
