UPDATE projection_quarantine SET first_failed_at = :first_failed_at, attempts = attempts + :attempts
WHERE group_id = :group_id AND chain_hash = :chain_hash
