-- Whether this server may be written to now: a standby and a read-only primary may not.
SELECT pg_is_in_recovery() AS in_recovery, current_setting('transaction_read_only')::boolean AS read_only
