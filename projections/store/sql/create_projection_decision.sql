-- What was decided about quarantined Events, by whom and why: only ever added to. Survives the reset of a Group and of
-- the projection. Those of the verb 'skip' say which Events are passed over, on the history that chain_hash names.
-- The two further constraints hold anyway: their indexes find the decisions about one Group, and those of one verb.
CREATE TABLE IF NOT EXISTS projection_decision (
    decision_id BIGINT PRIMARY KEY,
    verb        TEXT NOT NULL CHECK (verb IN ('retry', 'release', 'skip')),
    group_id    TEXT NOT NULL,
    sequence    BIGINT NOT NULL,
    event_id    TEXT NOT NULL,
    chain_hash  BLOB NOT NULL CHECK (length(chain_hash) = 32),
    kind        TEXT NOT NULL,
    version     INTEGER NOT NULL,
    attempts    BIGINT NOT NULL,
    who         TEXT NOT NULL,
    why         TEXT NOT NULL,
    decided_at  TEXT NOT NULL,
    UNIQUE (group_id, decision_id),
    UNIQUE (verb, decision_id)
) WITHOUT ROWID
