DELETE FROM {table} WHERE group_id = :group_id
