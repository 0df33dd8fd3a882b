-- Unqualified names mean this projection's schema. A commit that was answered survives a crash: the acknowledgement to
-- the broker rests on it. A server notices a dead client within seconds, so that the lock of a lost writer is free soon.
SELECT set_config('search_path', :search_path, false),
       set_config('synchronous_commit',
                  CASE WHEN current_setting('synchronous_commit') = 'off' THEN 'on'
                       ELSE current_setting('synchronous_commit') END, false),
       set_config('tcp_keepalives_idle', '5', false),
       set_config('tcp_keepalives_interval', '2', false),
       set_config('tcp_keepalives_count', '3', false),
       set_config('tcp_user_timeout', '10000', false)
