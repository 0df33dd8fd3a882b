-- Checkpointed, expired, revoked or submitted: no execution lease runs any more.
INSERT INTO work_queue_work_item (group_id, work_item_id, state, revision, ownership_expires_at, start_by, checkpoint)
VALUES (:group_id, :work_item_id, :state, :revision, :ownership_expires_at, :start_by, :checkpoint)
ON CONFLICT (group_id, work_item_id) DO UPDATE SET
    state = excluded.state, revision = excluded.revision,
    ownership_expires_at = coalesce(excluded.ownership_expires_at, work_queue_work_item.ownership_expires_at),
    start_by = coalesce(excluded.start_by, work_queue_work_item.start_by),
    checkpoint = coalesce(excluded.checkpoint, work_queue_work_item.checkpoint),
    execution_lease_id = NULL, execution_session_epoch = NULL, execution_expires_at = NULL
