INSERT INTO projection_edition (only_row, edition) VALUES (1, :edition) ON CONFLICT (only_row) DO NOTHING
