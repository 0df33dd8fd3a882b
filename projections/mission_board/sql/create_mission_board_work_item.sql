CREATE TABLE IF NOT EXISTS mission_board_work_item (
    group_id     TEXT NOT NULL,
    work_item_id TEXT NOT NULL,
    state        TEXT NOT NULL,
    PRIMARY KEY (group_id, work_item_id)
)
