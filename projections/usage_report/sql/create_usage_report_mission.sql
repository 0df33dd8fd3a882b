-- Money is a decimal number as text: a database's own numbers would round it, or spell it anew.
CREATE TABLE IF NOT EXISTS usage_report_mission (
    group_id              TEXT PRIMARY KEY,
    mission_id            TEXT,
    title                 TEXT,
    state                 TEXT,
    currency              TEXT,
    money                 TEXT,
    model_tokens          BIGINT,
    tool_calls            BIGINT,
    compute_seconds       BIGINT,
    wall_clock_seconds    BIGINT,
    external_side_effects BIGINT,
    messages              BIGINT NOT NULL DEFAULT 0,
    checkpoints           BIGINT NOT NULL DEFAULT 0,
    late_results          BIGINT NOT NULL DEFAULT 0
)
