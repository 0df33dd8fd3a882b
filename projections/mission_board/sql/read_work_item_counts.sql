SELECT group_id, state, count(*) FROM mission_board_work_item GROUP BY group_id, state ORDER BY group_id, state
