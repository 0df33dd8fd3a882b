-- The newest offer of each WorkItem to this Agent.
CREATE TABLE IF NOT EXISTS work_queue_offer (
    group_id     TEXT NOT NULL,
    work_item_id TEXT NOT NULL,
    offer_id     TEXT NOT NULL,
    expires_at   TEXT NOT NULL,
    status       TEXT NOT NULL,
    PRIMARY KEY (group_id, work_item_id)
)
