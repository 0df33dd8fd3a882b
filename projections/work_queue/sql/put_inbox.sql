INSERT INTO work_queue_inbox (group_id, sequence, event_id, kind, work_item_id, occurred_at)
VALUES (:group_id, :sequence, :event_id, :kind, :work_item_id, :occurred_at)
