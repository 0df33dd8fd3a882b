-- Held by the session until it ends: whoever has it knows that no earlier transaction of another is still on its way.
SELECT pg_try_advisory_lock(hashtextextended('weavehold/projection/' || :schema, 0))
