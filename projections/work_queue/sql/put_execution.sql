-- Started or renewed; the ownership lease changes only where the Event carries it.
INSERT INTO work_queue_work_item (
    group_id, work_item_id, state, revision, owner_id, ownership_epoch, ownership_expires_at, start_by,
    execution_lease_id, execution_session_epoch, execution_expires_at
) VALUES (
    :group_id, :work_item_id, :state, :revision, :owner_id, :ownership_epoch, :ownership_expires_at, :start_by,
    :execution_lease_id, :execution_session_epoch, :execution_expires_at
)
ON CONFLICT (group_id, work_item_id) DO UPDATE SET
    state = excluded.state, revision = excluded.revision,
    ownership_expires_at = coalesce(excluded.ownership_expires_at, work_queue_work_item.ownership_expires_at),
    start_by = coalesce(excluded.start_by, work_queue_work_item.start_by),
    execution_lease_id = excluded.execution_lease_id, execution_session_epoch = excluded.execution_session_epoch,
    execution_expires_at = excluded.execution_expires_at
