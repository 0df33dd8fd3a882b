-- Bodies as large as the ones that the authority has just written, and one head per Group.
WITH heads AS (
    INSERT INTO baseline.head
    SELECT 'urn:weavehold:bench:group:' || n, 0 FROM generate_series(0, %(groups)s::integer - 1) AS n
)
INSERT INTO baseline.body
SELECT 'event', baseline.noise((SELECT avg(octet_length(event))::integer FROM event_log WHERE kind = 'message.posted'))
UNION ALL
SELECT 'entity', baseline.noise((SELECT avg(octet_length(body))::integer FROM entity WHERE kind = 'message'))
UNION ALL
SELECT 'receipt', baseline.noise((SELECT avg(octet_length(receipt))::integer FROM receipt))
UNION ALL
SELECT 'command', baseline.noise((SELECT avg(octet_length(command))::integer FROM receipt))
