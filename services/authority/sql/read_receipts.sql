-- One probe of the primary key per Action ID: a join may be planned as a scan of all receipts.
SELECT found.actor_id, found.action_id, found.command_hash, found.receipt
FROM unnest(%(actor_ids)s::text[], %(action_ids)s::text[]) AS asked (actor_id, action_id)
CROSS JOIN LATERAL (
    SELECT r.actor_id, r.action_id, r.command_hash, r.receipt
    FROM receipt r
    WHERE r.organization_id = %(organization_id)s AND r.actor_id = asked.actor_id AND r.action_id = asked.action_id
    LIMIT 1
) found
