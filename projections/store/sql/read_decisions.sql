SELECT verb, group_id, sequence, event_id, chain_hash, kind, version, attempts, who, why, decided_at
FROM projection_decision ORDER BY decision_id
