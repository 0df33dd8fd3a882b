CREATE TABLE IF NOT EXISTS mission_board_member (
    group_id    TEXT NOT NULL,
    member_id   TEXT NOT NULL,
    member_type TEXT NOT NULL,
    role        TEXT NOT NULL,
    state       TEXT NOT NULL,
    PRIMARY KEY (group_id, member_id)
)
