INSERT INTO projection_cursor (group_id, incarnation, sequence, chain_hash)
VALUES (:group_id, :incarnation, :sequence, :chain_hash)
ON CONFLICT (group_id) DO NOTHING
