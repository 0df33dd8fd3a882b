INSERT INTO mission_board_mission (group_id, message_count, last_activity_at, last_sequence)
VALUES (:group_id, :messages, :at, :sequence)
ON CONFLICT (group_id) DO UPDATE SET
    message_count = mission_board_mission.message_count + excluded.message_count,
    last_activity_at = excluded.last_activity_at, last_sequence = excluded.last_sequence
