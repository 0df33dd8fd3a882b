SELECT group_id, sequence, event_id, reason FROM projection_stop ORDER BY group_id
