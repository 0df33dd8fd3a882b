UPDATE work_queue_offer SET status = :status
WHERE group_id = :group_id AND work_item_id = :work_item_id AND status = 'pending'
