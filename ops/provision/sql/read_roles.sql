-- Which of these roles there are, and whether each may log in.
SELECT rolname, rolcanlogin FROM pg_roles WHERE rolname = ANY(%(names)s)
