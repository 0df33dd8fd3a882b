-- Nothing is stored beyond the bound on open challenges.
INSERT INTO session_challenge (organization_id, challenge_id, agent_id, key_id, client_nonce, server_nonce, challenge,
    expires_at)
SELECT %(organization_id)s, %(challenge_id)s, %(agent_id)s, %(key_id)s, %(client_nonce)s, %(server_nonce)s,
    %(challenge)s, %(expires_at)s
WHERE (SELECT count(*) FROM session_challenge WHERE organization_id = %(organization_id)s) < %(open_challenges_max)s
