-- WorkItems that are alike in state and budget are told once. An empty Group asks for all.
SELECT group_id, state, count(*),
       currency, money, model_tokens, tool_calls, compute_seconds, wall_clock_seconds, external_side_effects
FROM usage_report_work_item WHERE :group_id = '' OR group_id = :group_id
GROUP BY group_id, state, currency, money, model_tokens, tool_calls, compute_seconds, wall_clock_seconds,
         external_side_effects
ORDER BY group_id, state
