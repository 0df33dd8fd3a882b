-- What was consumed and no longer exists. Survives the reset of its Group and of the projection. The last three columns
-- are an operator's, set once, together.
CREATE TABLE IF NOT EXISTS projection_fork (
    fork_id           BIGINT PRIMARY KEY,
    group_id          TEXT NOT NULL,
    seen_incarnation  TEXT NOT NULL,
    seen_sequence     BIGINT NOT NULL,
    seen_chain_hash   BLOB NOT NULL,
    found_incarnation TEXT NOT NULL,
    found_sequence    BIGINT NOT NULL,
    found_chain_hash  BLOB NOT NULL,
    lost_events       TEXT NOT NULL,
    shared_sequence   BIGINT,
    noticed_at        TEXT NOT NULL,
    acknowledged_by   TEXT,
    acknowledged_for  TEXT,
    acknowledged_at   TEXT,
    CHECK ((acknowledged_by IS NULL) = (acknowledged_at IS NULL)),
    CHECK ((acknowledged_for IS NULL) = (acknowledged_at IS NULL))
)
