-- Groups that cannot go on, and why. Other Groups flow.
CREATE TABLE IF NOT EXISTS projection_stop (
    group_id TEXT PRIMARY KEY,
    sequence BIGINT NOT NULL,
    event_id TEXT NOT NULL,
    reason   TEXT NOT NULL
) WITHOUT ROWID
