-- No session of a lost history may pass as current (RULE-17). An Agent without a session gets a higher one anyway.
UPDATE agent
SET session_epoch = %(epoch_floor)s, session_event_id = %(event_id)s
WHERE organization_id = %(organization_id)s AND session_epoch BETWEEN 1 AND %(epoch_floor)s
