UPDATE mission_board_work_item SET state = 'queued' WHERE group_id = :group_id AND state = 'active'
