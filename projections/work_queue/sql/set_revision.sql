UPDATE work_queue_work_item SET revision = :revision WHERE group_id = :group_id AND work_item_id = :work_item_id
