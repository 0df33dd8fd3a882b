INSERT INTO work_queue_group (
    group_id, mission_id, membership_id, membership_epoch, membership_role, membership_state
) VALUES (:group_id, :mission_id, :membership_id, :membership_epoch, :role, :state)
ON CONFLICT (group_id) DO UPDATE SET
    mission_id = excluded.mission_id, membership_id = excluded.membership_id,
    membership_epoch = excluded.membership_epoch, membership_role = excluded.membership_role,
    membership_state = excluded.membership_state
