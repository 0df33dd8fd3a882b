-- The result is accepted: the owner stays named, no lease runs any more.
INSERT INTO work_queue_work_item (group_id, work_item_id, state, revision)
VALUES (:group_id, :work_item_id, :state, :revision)
ON CONFLICT (group_id, work_item_id) DO UPDATE SET
    state = excluded.state, revision = excluded.revision, ownership_expires_at = NULL, start_by = NULL,
    execution_lease_id = NULL, execution_session_epoch = NULL, execution_expires_at = NULL
