-- Once: who acknowledged a fork first stays on record.
UPDATE projection_fork SET acknowledged_by = :who, acknowledged_for = :why, acknowledged_at = :at
WHERE fork_id = :number AND acknowledged_at IS NULL
