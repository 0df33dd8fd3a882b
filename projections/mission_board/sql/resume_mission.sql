UPDATE mission_board_mission SET
    coordinator_epoch = CASE WHEN state IN ('approved', 'cancelled', 'failed') THEN coordinator_epoch ELSE :epoch END,
    state = CASE WHEN state = 'awaiting_approval' THEN 'active' ELSE state END
WHERE group_id = :group_id
