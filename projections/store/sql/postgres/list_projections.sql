-- Every schema of this database that holds a projection.
SELECT schemaname FROM pg_tables
WHERE tablename = 'projection_meta' AND schemaname LIKE 'projection\_%' ORDER BY schemaname
