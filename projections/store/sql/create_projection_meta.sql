-- Whose rows these are. Anything unexpected here means: discard and replay.
CREATE TABLE IF NOT EXISTS projection_meta (
    only_row        INTEGER PRIMARY KEY CHECK (only_row = 1),
    store_version   INTEGER NOT NULL,
    consumer        TEXT NOT NULL,
    version         INTEGER NOT NULL,
    variant         TEXT NOT NULL,
    organization_id TEXT NOT NULL
)
