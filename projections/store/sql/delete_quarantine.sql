DELETE FROM projection_quarantine WHERE group_id = :group_id
