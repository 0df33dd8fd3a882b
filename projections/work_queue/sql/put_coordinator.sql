INSERT INTO work_queue_group (group_id, coordinator_id, coordinator_epoch)
VALUES (:group_id, :coordinator_id, :coordinator_epoch)
ON CONFLICT (group_id) DO UPDATE SET
    coordinator_id = excluded.coordinator_id, coordinator_epoch = excluded.coordinator_epoch
