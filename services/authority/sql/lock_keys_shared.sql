-- Acceptance holds this for its whole transaction; whoever changes a key takes it exclusively, so "revoked" means revoked (RULE-06).
SELECT pg_advisory_xact_lock_shared(hashtextextended('weavehold/keys/' || %(organization_id)s, 0))
