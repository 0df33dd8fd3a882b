UPDATE mission_board_mission SET state = :state WHERE group_id = :group_id
