"""PostgreSQL, NATS and the services on one machine, under one directory, as children of one supervisor."""
