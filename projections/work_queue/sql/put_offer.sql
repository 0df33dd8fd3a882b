INSERT INTO work_queue_offer (group_id, work_item_id, offer_id, expires_at, status)
VALUES (:group_id, :work_item_id, :offer_id, :expires_at, :status)
ON CONFLICT (group_id, work_item_id) DO UPDATE SET
    offer_id = excluded.offer_id, expires_at = excluded.expires_at, status = excluded.status
