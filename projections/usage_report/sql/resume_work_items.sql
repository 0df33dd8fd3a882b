UPDATE usage_report_work_item SET state = 'queued' WHERE group_id = :group_id AND state = 'active'
