INSERT INTO projection_fork (
    group_id, seen_incarnation, seen_sequence, seen_chain_hash,
    found_incarnation, found_sequence, found_chain_hash, lost_events
) VALUES (
    :group_id, :seen_incarnation, :seen_sequence, :seen_chain_hash,
    :found_incarnation, :found_sequence, :found_chain_hash, :lost_events
)
