-- With the views that somebody put upon it.
DROP TABLE IF EXISTS {table} CASCADE
