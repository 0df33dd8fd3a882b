INSERT INTO mission_board_member (group_id, member_id, member_type, role, state)
VALUES (:group_id, :member_id, :member_type, :role, :state)
ON CONFLICT (group_id, member_id) DO UPDATE SET role = excluded.role, state = excluded.state
