CREATE TABLE IF NOT EXISTS usage_report_work_item (
    group_id              TEXT NOT NULL,
    work_item_id          TEXT NOT NULL,
    state                 TEXT NOT NULL,
    currency              TEXT,
    money                 TEXT,
    model_tokens          BIGINT,
    tool_calls            BIGINT,
    compute_seconds       BIGINT,
    wall_clock_seconds    BIGINT,
    external_side_effects BIGINT,
    PRIMARY KEY (group_id, work_item_id)
)
