-- A Group replayed after a fork brings no intents up to this sequence, its head when the fork was found (RULE-22).
CREATE TABLE IF NOT EXISTS projection_silence (
    group_id TEXT PRIMARY KEY,
    sequence BIGINT NOT NULL CHECK (sequence >= 0)
) WITHOUT ROWID
