-- The next incarnation, bound to the cluster and timeline that it begins on.
INSERT INTO incarnation (organization_id, ordinal, incarnation, parent, epoch_base, abandoned, reason, event_id,
    system_identifier, timeline)
SELECT i.organization_id, i.ordinal + 1, %(incarnation)s, i.incarnation, %(epoch_base)s, %(abandoned)s::text[],
    %(reason)s, %(event_id)s, l.cluster, l.timeline
FROM incarnation i
CROSS JOIN server_life l
WHERE i.organization_id = %(organization_id)s
ORDER BY i.ordinal DESC
LIMIT 1
