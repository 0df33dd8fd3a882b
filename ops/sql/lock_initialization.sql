-- One initialization at a time; released with the transaction.
SELECT pg_advisory_xact_lock(hashtextextended('weavehold/init', 0))
