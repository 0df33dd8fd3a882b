-- Events of Groups accepted from a moment on, with the time of their transaction's commit. The server keeps those times
-- when track_commit_timestamp is on.
SELECT group_id, sequence, extract(epoch FROM pg_xact_commit_timestamp(xmin))::float8
FROM event_log
WHERE shard_id > 0 AND accepted_at >= %(after)s
