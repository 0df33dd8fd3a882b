UPDATE projection_silence SET sequence = :sequence WHERE group_id = :group_id AND sequence > :sequence
