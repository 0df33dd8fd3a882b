-- Numbered in their order; one writer at a time, so no two take one number.
INSERT INTO projection_fork (
    fork_id, group_id, seen_incarnation, seen_sequence, seen_chain_hash,
    found_incarnation, found_sequence, found_chain_hash, lost_events, shared_sequence, noticed_at
) VALUES (
    (SELECT coalesce(max(fork_id), 0) + 1 FROM projection_fork),
    :group_id, :seen_incarnation, :seen_sequence, :seen_chain_hash,
    :found_incarnation, :found_sequence, :found_chain_hash, :lost_events, :shared_sequence, :noticed_at
)
