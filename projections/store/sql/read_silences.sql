SELECT group_id, sequence FROM projection_silence ORDER BY group_id
