-- A key is valid from a little before its registration, since its holder's clock may be behind the database's.
INSERT INTO signing_key (organization_id, key_id, principal_type, principal_id, public_key, valid_from)
VALUES (
    %(organization_id)s, %(key_id)s, %(principal_type)s, %(principal_id)s, %(public_key)s,
    to_char(
        (weavehold_clock() - make_interval(secs => %(valid_before_seconds)s)) AT TIME ZONE 'UTC',
        'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'
    )
)
ON CONFLICT (organization_id, key_id) DO NOTHING
