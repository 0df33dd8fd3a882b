INSERT INTO projection_writer (only_row, last_transaction) VALUES (1, :name) ON CONFLICT (only_row) DO NOTHING
