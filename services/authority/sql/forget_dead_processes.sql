-- Rows of processes that ended without a word, and of this instance's earlier lives, which must not count towards the
-- fair share; one that is being renewed right now is left alone.
DELETE FROM authority_process
WHERE (organization_id, holder) IN (
    SELECT organization_id, holder FROM authority_process
    WHERE organization_id = %(organization_id)s AND holder <> %(holder)s
        AND (expires_at <= weavehold_clock() OR split_part(holder, '-', 1) = split_part(%(holder)s, '-', 1))
    ORDER BY holder
    FOR UPDATE SKIP LOCKED
)
