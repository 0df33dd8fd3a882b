SELECT count(*) FROM projection_quarantine WHERE tried_at IS NULL
