INSERT INTO projection_silence (group_id, sequence) VALUES (:group_id, :sequence)
ON CONFLICT (group_id) DO UPDATE SET sequence = excluded.sequence
