SELECT group_id, mission_id, title, state, coordinator_id, coordinator_epoch, message_count, last_activity_at,
       last_sequence
FROM mission_board_mission ORDER BY last_activity_at DESC, group_id
