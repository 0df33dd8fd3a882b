SELECT group_id, work_item_id, state, revision, conversation_id, contract, owner_id, owner, ownership_epoch,
       ownership_lease_id, ownership_expires_at, start_by,
       execution_lease_id, execution_session_epoch, execution_expires_at, checkpoint
FROM work_queue_work_item WHERE owner_id = :agent_id
ORDER BY group_id, work_item_id
