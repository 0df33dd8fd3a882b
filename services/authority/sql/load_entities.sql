-- The state of whole Groups, Messages left out: no decision reads them.
SELECT group_id, kind, entity_id, revision, body
FROM entity
WHERE organization_id = %(organization_id)s AND group_id = ANY(%(group_ids)s::text[]) AND kind <> 'message'
