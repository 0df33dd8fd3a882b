-- Shard 0 is the Organization's own; 1…S hold Mission trees.
INSERT INTO shard (organization_id, shard_id)
SELECT %(organization_id)s, generate_series(0, %(shard_count)s::integer)
