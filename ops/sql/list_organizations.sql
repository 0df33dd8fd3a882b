SELECT name FROM organization ORDER BY name
