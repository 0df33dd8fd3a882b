INSERT INTO usage_report_work_item (group_id, work_item_id, state) VALUES (:group_id, :work_item_id, :state)
ON CONFLICT (group_id, work_item_id) DO UPDATE SET state = excluded.state
