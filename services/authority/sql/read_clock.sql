-- A statement of its own, after the locks: a clock read while waiting for a lock is stale by the wait.
SELECT weavehold_clock()
