-- This process lives; the answer names all that do.
WITH announced AS (
    INSERT INTO relay_process AS known (organization_id, holder, expires_at)
    VALUES (%(organization_id)s, %(holder)s, weavehold_clock() + make_interval(secs => %(lease_seconds)s))
    ON CONFLICT (organization_id, holder) DO UPDATE SET expires_at = excluded.expires_at
    RETURNING holder
)
SELECT holder FROM announced
UNION
SELECT holder FROM relay_process WHERE organization_id = %(organization_id)s AND expires_at > weavehold_clock()
ORDER BY holder
