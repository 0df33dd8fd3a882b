-- What was consumed and no longer exists. Survives the reset of its Group and of the projection.
CREATE TABLE IF NOT EXISTS projection_fork (
    fork_id           INTEGER PRIMARY KEY AUTOINCREMENT,
    group_id          TEXT NOT NULL,
    seen_incarnation  TEXT NOT NULL,
    seen_sequence     INTEGER NOT NULL,
    seen_chain_hash   BLOB NOT NULL,
    found_incarnation TEXT NOT NULL,
    found_sequence    INTEGER NOT NULL,
    found_chain_hash  BLOB NOT NULL,
    lost_events       TEXT NOT NULL
)
