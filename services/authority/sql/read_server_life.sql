-- Of which life of which server this connection tells.
SELECT cluster, timeline, started_at FROM server_life
