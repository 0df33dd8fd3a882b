SELECT name FROM pragma_table_info(:table) WHERE pk > 0 ORDER BY pk
