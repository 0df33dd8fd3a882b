-- Sorted, so that two shards that claim the same names cannot deadlock. A name claimed meanwhile fails the
-- statement: the batch runs again and finds it taken.
INSERT INTO identifier (organization_id, identifier, entity_kind, group_id)
SELECT %(organization_id)s, i.*
FROM unnest(%(identifiers)s::text[], %(entity_kinds)s::text[], %(group_ids)s::text[]) AS i
ORDER BY 2
