-- The last transaction of the writer, by a name that no other ever has: after a lost connection it tells whether a
-- commit in doubt happened, and whether somebody else wrote here or an older state came back.
CREATE TABLE IF NOT EXISTS projection_writer (
    only_row         INTEGER PRIMARY KEY CHECK (only_row = 1),
    last_transaction TEXT NOT NULL
)
