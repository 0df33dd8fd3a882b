CREATE TABLE IF NOT EXISTS mission_board_mission (
    group_id          TEXT PRIMARY KEY,
    mission_id        TEXT,
    title             TEXT,
    state             TEXT,
    coordinator_id    TEXT,
    coordinator_epoch BIGINT,
    message_count     BIGINT NOT NULL,
    last_activity_at  TEXT NOT NULL,
    last_sequence     BIGINT NOT NULL
)
