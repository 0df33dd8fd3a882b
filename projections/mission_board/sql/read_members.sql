SELECT group_id, member_id, member_type, role, state FROM mission_board_member ORDER BY group_id, member_id
