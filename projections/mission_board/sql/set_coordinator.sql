UPDATE mission_board_mission SET coordinator_id = :coordinator_id, coordinator_epoch = :coordinator_epoch
WHERE group_id = :group_id
