SELECT action_id, kind, issued_at, raw FROM command_journal WHERE step = :step;
