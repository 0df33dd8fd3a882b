INSERT INTO audit_trail_event (
    group_id, sequence, event_id, kind, actor_type, actor_id, occurred_at, work_item_id, conversation_id,
    cause_type, cause_id, aggregate_revision, words
) VALUES (
    :group_id, :sequence, :event_id, :kind, :actor_type, :actor_id, :occurred_at, :work_item_id, :conversation_id,
    :cause_type, :cause_id, :aggregate_revision, :words
)
