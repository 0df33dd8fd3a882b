-- "This Group reaches at least this sequence": kept when an Event beyond the Cursor is acknowledged to the broker.
CREATE TABLE IF NOT EXISTS projection_known_head (
    group_id TEXT PRIMARY KEY,
    sequence BIGINT NOT NULL CHECK (sequence >= 0)
) WITHOUT ROWID
