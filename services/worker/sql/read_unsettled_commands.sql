SELECT step, action_id, kind, issued_at, raw FROM command_journal ORDER BY issued_at, step;
