INSERT INTO command_journal (step, action_id, kind, issued_at, raw)
VALUES (:step, :action_id, :kind, :issued_at, :raw)
ON CONFLICT (step) DO UPDATE
SET action_id = excluded.action_id, kind = excluded.kind, issued_at = excluded.issued_at, raw = excluded.raw;
