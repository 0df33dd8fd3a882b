-- This process lives, and so many others do.
WITH me AS (
    INSERT INTO authority_process (organization_id, holder, expires_at)
    VALUES (%(organization_id)s, %(holder)s, weavehold_clock() + make_interval(secs => %(ttl_seconds)s))
    ON CONFLICT (organization_id, holder) DO UPDATE SET expires_at = excluded.expires_at
)
SELECT count(*) + 1
FROM authority_process
WHERE organization_id = %(organization_id)s AND holder <> %(holder)s AND expires_at > weavehold_clock()
