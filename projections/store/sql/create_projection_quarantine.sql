-- Groups that stand before an Event which cannot be applied, who answers for it, and how often it failed. Others flow.
-- While a Group is being tried again, tried_at says since when.
CREATE TABLE IF NOT EXISTS projection_quarantine (
    group_id        TEXT PRIMARY KEY,
    sequence        BIGINT NOT NULL,
    event_id        TEXT NOT NULL,
    chain_hash      BLOB NOT NULL CHECK (length(chain_hash) = 32),
    kind            TEXT NOT NULL,
    reason          TEXT NOT NULL,
    owner           TEXT NOT NULL,
    version         INTEGER NOT NULL,
    first_failed_at TEXT NOT NULL,
    last_failed_at  TEXT NOT NULL,
    attempts        BIGINT NOT NULL CHECK (attempts >= 0),
    tried_at        TEXT
) WITHOUT ROWID
