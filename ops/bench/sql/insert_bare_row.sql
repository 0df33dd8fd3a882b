INSERT INTO bare_row (event) VALUES (:event)
