DELETE FROM projection_stop WHERE group_id = :group_id
