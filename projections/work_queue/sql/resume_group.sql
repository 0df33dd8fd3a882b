-- Everybody acts under a higher epoch, and what waited for an approval is submitted anew.
UPDATE work_queue_group SET
    coordinator_epoch = CASE
        WHEN mission_state IN ('approved', 'cancelled', 'failed') OR coordinator_epoch IS NULL THEN coordinator_epoch
        ELSE :epoch
    END,
    membership_epoch = CASE
        WHEN membership_state = 'ended' OR membership_epoch IS NULL THEN membership_epoch
        ELSE :epoch
    END,
    mission_state = CASE WHEN mission_state = 'awaiting_approval' THEN 'active' ELSE mission_state END
WHERE group_id = :group_id
