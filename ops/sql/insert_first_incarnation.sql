-- Bound to this cluster and timeline: a copy that moved on without this one is recognised by them.
INSERT INTO incarnation (organization_id, ordinal, incarnation, epoch_base, reason, system_identifier, timeline)
SELECT %(organization_id)s, 1, %(incarnation)s, 0, 'initialized', system_identifier::text, weavehold_timeline()
FROM pg_control_system()
