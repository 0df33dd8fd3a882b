-- Bound to this cluster and timeline: a copy that moved on without this one is recognised by them.
INSERT INTO incarnation (organization_id, ordinal, incarnation, system_identifier, timeline)
SELECT %(organization_id)s, 1, %(incarnation)s, system_identifier::text, timeline_id
FROM pg_control_system(), pg_control_checkpoint()
