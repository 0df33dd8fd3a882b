INSERT INTO bare_event (event) VALUES (%(event)s)
