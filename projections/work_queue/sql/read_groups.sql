SELECT group_id, mission_id, title, mission_state, coordinator_id, coordinator_epoch,
       membership_id, membership_epoch, membership_role, membership_state
FROM work_queue_group ORDER BY group_id
