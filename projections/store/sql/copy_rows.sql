-- Both tables were created by the same statement, so their columns are the same.
INSERT INTO {table} SELECT * FROM {green}.{table} WHERE group_id = :group_id
