-- Compare and set: no row changes when the Group is tried already, or failed again, or stands before another Event.
UPDATE projection_quarantine SET tried_at = :at, attempts = :attempts
WHERE group_id = :group_id AND chain_hash = :chain_hash AND attempts = :attempts_before AND tried_at IS NULL
