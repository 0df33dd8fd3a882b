INSERT INTO agent (organization_id, agent_id, card_version, card)
SELECT %(organization_id)s, a.*
FROM unnest(%(agent_ids)s::text[], %(card_versions)s::bigint[], %(cards)s::bytea[]) AS a
ORDER BY 2
ON CONFLICT (organization_id, agent_id) DO UPDATE SET card_version = excluded.card_version, card = excluded.card
