INSERT INTO usage_report_mission (group_id, state) VALUES (:group_id, :state)
ON CONFLICT (group_id) DO UPDATE SET state = excluded.state
