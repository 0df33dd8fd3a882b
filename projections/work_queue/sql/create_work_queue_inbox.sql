-- The Events that concern this Agent, in each Group's order.
CREATE TABLE IF NOT EXISTS work_queue_inbox (
    group_id     TEXT NOT NULL,
    sequence     BIGINT NOT NULL,
    event_id     TEXT NOT NULL,
    kind         TEXT NOT NULL,
    work_item_id TEXT,
    occurred_at  TEXT NOT NULL,
    PRIMARY KEY (group_id, sequence)
)
