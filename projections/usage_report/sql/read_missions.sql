-- An empty Group asks for all.
SELECT group_id, mission_id, title, state, messages, checkpoints, late_results,
       currency, money, model_tokens, tool_calls, compute_seconds, wall_clock_seconds, external_side_effects
FROM usage_report_mission WHERE :group_id = '' OR group_id = :group_id ORDER BY group_id
