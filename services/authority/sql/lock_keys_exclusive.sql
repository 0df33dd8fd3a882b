-- Binding, retiring and revoking wait for every acceptance under way, and every later one sees what they did (RULE-06).
SELECT pg_advisory_xact_lock(hashtextextended('weavehold/keys/' || %(organization_id)s, 0))
