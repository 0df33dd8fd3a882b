INSERT INTO projection_stop (group_id, sequence, event_id, reason) VALUES (:group_id, :sequence, :event_id, :reason)
ON CONFLICT (group_id) DO UPDATE SET
    sequence = excluded.sequence, event_id = excluded.event_id, reason = excluded.reason
