-- Readers see the last commit while a writer works, and a commit is one append.
PRAGMA journal_mode = WAL
