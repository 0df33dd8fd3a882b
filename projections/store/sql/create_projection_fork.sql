-- What was consumed and no longer exists. Survives the reset of its Group and of the projection.
CREATE TABLE IF NOT EXISTS projection_fork (
    fork_id           BIGINT PRIMARY KEY,
    group_id          TEXT NOT NULL,
    seen_incarnation  TEXT NOT NULL,
    seen_sequence     BIGINT NOT NULL,
    seen_chain_hash   BLOB NOT NULL,
    found_incarnation TEXT NOT NULL,
    found_sequence    BIGINT NOT NULL,
    found_chain_hash  BLOB NOT NULL,
    lost_events       TEXT NOT NULL
)
