-- The key registry's history bears the Organization's own name, so no Mission may take that name for its Group.
INSERT INTO identifier (organization_id, identifier, entity_kind, group_id)
VALUES (%(organization_id)s, %(organization_id)s, 'key_registry', %(organization_id)s)
