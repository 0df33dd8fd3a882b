-- The transaction holds the file's write lock: nobody can replace what it reads here.
SELECT edition FROM projection_edition
