INSERT INTO projection_known_head (group_id, sequence) VALUES (:group_id, :sequence)
ON CONFLICT (group_id) DO UPDATE SET sequence = excluded.sequence
WHERE excluded.sequence > projection_known_head.sequence
