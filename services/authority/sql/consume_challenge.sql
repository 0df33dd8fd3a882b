-- Takes the challenge away for good, whatever its answer is worth, with the key that must have signed the answer.
WITH consumed AS (
    DELETE FROM session_challenge
    WHERE organization_id = %(organization_id)s AND challenge_id = %(challenge_id)s
    RETURNING agent_id, key_id, client_nonce, server_nonce, challenge, expires_at
)
SELECT c.agent_id, c.key_id, c.client_nonce, c.server_nonce, c.challenge, c.expires_at, one.now,
    greatest(one.now, key_moment(%(organization_id)s)),
    k.key_id, k.principal_type, k.principal_id, k.public_key, k.valid_from, k.valid_until, k.revoked_at
FROM consumed c
CROSS JOIN (SELECT weavehold_clock() AS now) AS one
LEFT JOIN registered_key k ON k.organization_id = %(organization_id)s AND k.key_id = c.key_id
