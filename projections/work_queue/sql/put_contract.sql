-- A WorkItem that nobody owns: authorized, or offered (anew).
INSERT INTO work_queue_work_item (group_id, work_item_id, state, revision, conversation_id, contract)
VALUES (:group_id, :work_item_id, :state, :revision, :conversation_id, :contract)
ON CONFLICT (group_id, work_item_id) DO UPDATE SET
    state = excluded.state, revision = excluded.revision, contract = excluded.contract,
    conversation_id = coalesce(excluded.conversation_id, work_queue_work_item.conversation_id),
    owner_id = NULL, owner = NULL, ownership_epoch = NULL, ownership_lease_id = NULL, ownership_expires_at = NULL, start_by = NULL,
    execution_lease_id = NULL, execution_session_epoch = NULL, execution_expires_at = NULL
