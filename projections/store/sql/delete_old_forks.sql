DELETE FROM projection_fork WHERE group_id = :group_id AND fork_id NOT IN (
    SELECT fork_id FROM projection_fork WHERE group_id = :group_id ORDER BY fork_id DESC LIMIT :kept
)
