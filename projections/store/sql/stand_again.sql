UPDATE projection_quarantine SET tried_at = NULL
WHERE group_id = :group_id AND chain_hash = :chain_hash AND tried_at = :tried_at
