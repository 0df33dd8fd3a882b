SELECT 1 FROM projection_quarantine LIMIT 1
