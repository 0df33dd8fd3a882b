SELECT holder.pid, coalesce(activity.application_name, ''), coalesce(host(activity.client_addr), 'the same host')
FROM pg_locks AS holder
LEFT JOIN pg_stat_activity AS activity ON activity.pid = holder.pid
CROSS JOIN hashtextextended('weavehold/projection/' || :schema, 0) AS key
WHERE holder.locktype = 'advisory' AND holder.granted AND holder.objsubid = 1
  AND holder.database = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND holder.classid::bigint = ((key >> 32) & 4294967295) AND holder.objid::bigint = (key & 4294967295)
