DELETE FROM command_journal;
