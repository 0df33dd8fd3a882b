-- Bytes that do not compress.
CREATE FUNCTION baseline.noise(size integer) RETURNS bytea LANGUAGE sql VOLATILE AS $$
    SELECT substr(string_agg(sha256((random()::text || n::text)::bytea), ''::bytea), 1, size)
    FROM generate_series(1, size / 32 + 1) AS n
$$
