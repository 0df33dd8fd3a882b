INSERT INTO usage_report_work_item (
    group_id, work_item_id, state, currency, money, model_tokens, tool_calls, compute_seconds, wall_clock_seconds,
    external_side_effects
) VALUES (
    :group_id, :work_item_id, :state, :currency, :money, :model_tokens, :tool_calls, :compute_seconds,
    :wall_clock_seconds, :external_side_effects
)
