-- One Cursor per Group: everything up to sequence is applied, and chain_hash proves which history that was.
CREATE TABLE IF NOT EXISTS projection_cursor (
    group_id    TEXT PRIMARY KEY,
    incarnation TEXT NOT NULL,
    sequence    BIGINT NOT NULL CHECK (sequence >= 0),
    chain_hash  BLOB NOT NULL CHECK (length(chain_hash) = 32)
) WITHOUT ROWID
