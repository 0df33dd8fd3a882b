-- The name of the rows that are live: another one since they were exchanged for rebuilt ones, or discarded. A writer
-- that opened an earlier edition is fenced by it.
CREATE TABLE IF NOT EXISTS projection_edition (
    only_row INTEGER PRIMARY KEY CHECK (only_row = 1),
    edition  TEXT NOT NULL
)
