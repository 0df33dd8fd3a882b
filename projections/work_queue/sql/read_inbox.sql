SELECT group_id, sequence, event_id, kind, work_item_id, occurred_at FROM work_queue_inbox
WHERE group_id = :group_id AND sequence > :after ORDER BY sequence LIMIT :limit
