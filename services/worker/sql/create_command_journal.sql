-- One row per step whose Command has no final answer yet.
CREATE TABLE IF NOT EXISTS command_journal (
    step      TEXT PRIMARY KEY,
    action_id TEXT NOT NULL,
    kind      TEXT NOT NULL,
    issued_at TEXT NOT NULL,
    raw       BLOB NOT NULL
) STRICT;
