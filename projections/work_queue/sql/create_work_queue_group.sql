-- The Groups that the Agent is or was a member of. What stands before a late member's start is NULL.
CREATE TABLE IF NOT EXISTS work_queue_group (
    group_id          TEXT PRIMARY KEY,
    mission_id        TEXT,
    title             TEXT,
    mission_state     TEXT,
    coordinator_id    TEXT,
    coordinator_epoch BIGINT,
    membership_id     TEXT,
    membership_epoch  BIGINT,
    membership_role   TEXT,
    membership_state  TEXT
)
