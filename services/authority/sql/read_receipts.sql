SELECT r.actor_id, r.action_id, r.command_hash, r.receipt
FROM unnest(%(actor_ids)s::text[], %(action_ids)s::text[]) AS asked (actor_id, action_id)
JOIN receipt r ON r.organization_id = %(organization_id)s
    AND r.actor_id = asked.actor_id AND r.action_id = asked.action_id
