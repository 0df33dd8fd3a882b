-- Numbered in their order; of two at one moment the primary key refuses one.
INSERT INTO projection_decision (
    decision_id, verb, group_id, sequence, event_id, chain_hash, kind, version, attempts, who, why, decided_at
) VALUES (
    (SELECT coalesce(max(decision_id), 0) + 1 FROM projection_decision), :verb,
    :group_id, :sequence, :event_id, :chain_hash, :kind, :version, :attempts, :who, :why, :at
)
