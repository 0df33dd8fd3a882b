-- Numbered in their order; of two at one moment the primary key refuses one.
INSERT INTO projection_decision (
    verb, decision_id, group_id, sequence, event_id, chain_hash, kind, version, attempts, who, why, decided_at
) VALUES (
    :verb, (SELECT coalesce(max(decision_id), 0) + 1 FROM projection_decision),
    :group_id, :sequence, :event_id, :chain_hash, :kind, :version, :attempts, :who, :why, :at
)
