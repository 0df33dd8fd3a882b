-- All WorkItems of those Groups: whose they are, how far they are, and under which leases. Times as signed.
CREATE TABLE IF NOT EXISTS work_queue_work_item (
    group_id                TEXT NOT NULL,
    work_item_id            TEXT NOT NULL,
    state                   TEXT NOT NULL,
    revision                BIGINT NOT NULL,
    conversation_id         TEXT,
    contract                TEXT,
    owner_id                TEXT,
    owner                   TEXT,
    ownership_epoch         BIGINT,
    ownership_lease_id      TEXT,
    ownership_expires_at    TEXT,
    start_by                TEXT,
    execution_lease_id      TEXT,
    execution_session_epoch BIGINT,
    execution_expires_at    TEXT,
    checkpoint              TEXT,
    PRIMARY KEY (group_id, work_item_id)
)
