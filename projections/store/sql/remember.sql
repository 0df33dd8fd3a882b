INSERT INTO projection_applied (group_id, slot, sequence, chain_hash, event_id)
VALUES (:group_id, :slot, :sequence, :chain_hash, :event_id)
ON CONFLICT (group_id, slot) DO UPDATE SET
    sequence = excluded.sequence, chain_hash = excluded.chain_hash, event_id = excluded.event_id
