-- Rows of processes that ended without a word; one that is being renewed right now is left alone.
DELETE FROM relay_process
WHERE (organization_id, holder) IN (
    SELECT organization_id, holder FROM relay_process
    WHERE organization_id = %(organization_id)s AND expires_at <= weavehold_clock()
    ORDER BY holder
    FOR UPDATE SKIP LOCKED
)
