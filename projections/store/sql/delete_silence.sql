DELETE FROM projection_silence WHERE group_id = :group_id
