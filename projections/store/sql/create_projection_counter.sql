CREATE TABLE IF NOT EXISTS projection_counter (
    name   TEXT PRIMARY KEY,
    amount BIGINT NOT NULL CHECK (amount >= 0)
) WITHOUT ROWID
