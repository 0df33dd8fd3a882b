INSERT INTO usage_report_mission (
    group_id, mission_id, title, state, currency, money, model_tokens, tool_calls, compute_seconds, wall_clock_seconds,
    external_side_effects
) VALUES (
    :group_id, :mission_id, :title, :state, :currency, :money, :model_tokens, :tool_calls, :compute_seconds,
    :wall_clock_seconds, :external_side_effects
)
