INSERT INTO usage_report_mission (group_id, messages, checkpoints, late_results)
VALUES (:group_id, :messages, :checkpoints, :late_results)
ON CONFLICT (group_id) DO UPDATE SET
    messages = usage_report_mission.messages + excluded.messages,
    checkpoints = usage_report_mission.checkpoints + excluded.checkpoints,
    late_results = usage_report_mission.late_results + excluded.late_results
