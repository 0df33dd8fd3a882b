SELECT work_item_id, state FROM work_queue_work_item WHERE group_id = :group_id ORDER BY work_item_id
