-- Failures older than the days kept, and those beyond the newest rows kept.
DELETE FROM authentication_failure f
WHERE f.organization_id = %(organization_id)s
    AND (
        f.failed_at < weavehold_clock() - make_interval(days => %(days_kept)s)
        OR f.failure_id <= (
            SELECT max(newest.failure_id) FROM authentication_failure newest
            WHERE newest.organization_id = %(organization_id)s
        ) - %(rows_kept)s
    )
