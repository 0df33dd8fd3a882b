SELECT fork_id, group_id, seen_incarnation, seen_sequence, seen_chain_hash,
       found_incarnation, found_sequence, found_chain_hash, lost_events, shared_sequence, noticed_at,
       acknowledged_by, acknowledged_for, acknowledged_at
FROM projection_fork ORDER BY fork_id
