DELETE FROM command_journal WHERE step = :step;
