SELECT true FROM pg_namespace WHERE nspname = :schema
