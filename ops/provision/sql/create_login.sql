-- Make a login with one role, or bring it up to date; nothing has changed when it is refused.
DO $login$
DECLARE
    other text;
BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = {role_name}) THEN
        RAISE EXCEPTION USING MESSAGE = format('the role %s is not there; run `weavehold migrate` first', {role_name});
    END IF;
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = {login_name}) THEN
        CREATE ROLE {login} LOGIN;
    ELSIF EXISTS (SELECT FROM pg_roles WHERE rolname = {login_name} AND NOT rolcanlogin) THEN
        RAISE EXCEPTION USING MESSAGE = format('%s is a role that cannot log in; take another name', {login_name});
    ELSIF EXISTS (SELECT FROM pg_roles WHERE rolname = {login_name} AND rolsuper) THEN
        RAISE EXCEPTION USING MESSAGE = format('%s is a superuser, which no role narrows; take another name', {login_name});
    END IF;
    SELECT rolname INTO other FROM pg_roles
    WHERE rolname = ANY({groups}) AND rolname <> {role_name}
        AND pg_has_role({login_name}, oid, 'MEMBER') AND NOT pg_has_role({role_name}, oid, 'MEMBER')
    ORDER BY rolname LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION USING MESSAGE = format(
            '%s has the role %s already, and a login has one; take another name, or run REVOKE %s FROM %I first',
            {login_name}, other, other, {login_name});
    END IF;
    IF NOT pg_has_role({login_name}, {role_name}, 'USAGE') THEN
        GRANT {role} TO {login};
    END IF;
    ALTER ROLE {login} RESET ALL;
    EXECUTE format('ALTER ROLE %I IN DATABASE %I RESET ALL', {login_name}, current_database());
    {settings};
END
$login$
