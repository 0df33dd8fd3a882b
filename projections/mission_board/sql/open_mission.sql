UPDATE mission_board_mission SET
    mission_id = :mission_id, title = :title, state = :state,
    coordinator_id = :coordinator_id, coordinator_epoch = :coordinator_epoch
WHERE group_id = :group_id
