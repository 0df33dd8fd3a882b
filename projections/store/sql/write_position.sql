INSERT INTO projection_position (shard_id, incarnation, position) VALUES (:shard_id, :incarnation, :position)
ON CONFLICT (shard_id) DO UPDATE SET incarnation = excluded.incarnation, position = excluded.position
