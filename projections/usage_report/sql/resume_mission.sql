UPDATE usage_report_mission SET state = 'active' WHERE group_id = :group_id AND state = 'awaiting_approval'
