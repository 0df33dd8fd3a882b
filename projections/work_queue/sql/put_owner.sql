INSERT INTO work_queue_work_item (
    group_id, work_item_id, state, revision,
    owner_id, owner, ownership_epoch, ownership_lease_id, ownership_expires_at, start_by
) VALUES (
    :group_id, :work_item_id, :state, :revision,
    :owner_id, :owner, :ownership_epoch, :ownership_lease_id, :ownership_expires_at, :start_by
)
ON CONFLICT (group_id, work_item_id) DO UPDATE SET
    state = excluded.state, revision = excluded.revision,
    owner_id = excluded.owner_id, owner = excluded.owner, ownership_epoch = excluded.ownership_epoch,
    ownership_lease_id = excluded.ownership_lease_id, ownership_expires_at = excluded.ownership_expires_at,
    start_by = excluded.start_by,
    execution_lease_id = NULL, execution_session_epoch = NULL, execution_expires_at = NULL
