CREATE TABLE IF NOT EXISTS audit_trail_event (
    group_id           TEXT NOT NULL,
    sequence           BIGINT NOT NULL,
    event_id           TEXT NOT NULL,
    kind               TEXT NOT NULL,
    actor_type         TEXT NOT NULL,
    actor_id           TEXT NOT NULL,
    occurred_at        TEXT NOT NULL,
    work_item_id       TEXT,
    conversation_id    TEXT,
    cause_type         TEXT NOT NULL,
    cause_id           TEXT NOT NULL,
    aggregate_revision BIGINT NOT NULL,
    words              TEXT NOT NULL,
    PRIMARY KEY (group_id, sequence),
    -- Holds nothing back that the key lets through: it is the index that a search walks along.
    UNIQUE (occurred_at, group_id, sequence)
)
