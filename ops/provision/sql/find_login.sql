SELECT EXISTS (SELECT FROM pg_roles WHERE rolname = %(name)s)
