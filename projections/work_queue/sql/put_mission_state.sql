INSERT INTO work_queue_group (group_id, mission_state) VALUES (:group_id, :state)
ON CONFLICT (group_id) DO UPDATE SET mission_state = excluded.mission_state
