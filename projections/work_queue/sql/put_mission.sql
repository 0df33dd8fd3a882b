INSERT INTO work_queue_group (group_id, mission_id, title, mission_state, coordinator_id, coordinator_epoch)
VALUES (:group_id, :mission_id, :title, :state, :coordinator_id, :coordinator_epoch)
ON CONFLICT (group_id) DO UPDATE SET
    mission_id = excluded.mission_id, title = excluded.title, mission_state = excluded.mission_state,
    coordinator_id = excluded.coordinator_id, coordinator_epoch = excluded.coordinator_epoch
