SELECT shard_id, incarnation, position FROM projection_position WHERE shard_id = :shard_id
