"""Access for production: logins of the database, and accounts, keys and permissions of the broker."""
