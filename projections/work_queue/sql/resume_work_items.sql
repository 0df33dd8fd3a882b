-- Owners keep their unfinished WorkItems under a higher epoch; whatever was running is revoked.
UPDATE work_queue_work_item SET
    state = CASE WHEN state = 'active' THEN 'queued' ELSE state END,
    revision = revision + 1,
    ownership_epoch = :epoch,
    execution_lease_id = NULL, execution_session_epoch = NULL, execution_expires_at = NULL
WHERE group_id = :group_id AND owner_id IS NOT NULL AND state IN ('queued', 'active', 'blocked', 'submitted')
