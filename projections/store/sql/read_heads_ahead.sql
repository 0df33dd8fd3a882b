SELECT known.group_id, known.sequence
FROM projection_known_head AS known LEFT JOIN projection_cursor AS cursor ON cursor.group_id = known.group_id
WHERE known.sequence > coalesce(cursor.sequence, 0)
ORDER BY known.group_id
