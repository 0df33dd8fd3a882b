-- A bounded step: failures older than the days kept, and those before the newest rows kept, oldest first.
DELETE FROM authentication_failure
WHERE organization_id = %(organization_id)s AND failure_id IN (
    SELECT f.failure_id
    FROM authentication_failure f
    WHERE f.organization_id = %(organization_id)s
        AND (
            f.failed_at < weavehold_clock() - make_interval(days => %(days_kept)s)
            OR f.failure_id <= (
                SELECT max(newest.failure_id) FROM authentication_failure newest
                WHERE newest.organization_id = %(organization_id)s
            ) - %(rows_kept)s
        )
    ORDER BY f.failure_id
    LIMIT %(step)s
)
