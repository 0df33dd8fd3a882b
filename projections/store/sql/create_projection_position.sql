-- How far an unfiltered delivery of a shard is processed; per Group the Cursors decide.
CREATE TABLE IF NOT EXISTS projection_position (
    shard_id    INTEGER PRIMARY KEY,
    incarnation TEXT NOT NULL,
    position    BIGINT NOT NULL CHECK (position >= 0)
)
