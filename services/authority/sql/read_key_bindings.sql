-- Some bindings, each with the statements of its ends in order, as JSON that leaves out what is not stated.
SELECT k.key_id, k.principal_type, k.principal_id, k.public_key, k.valid_from,
    coalesce(
        jsonb_agg(
            jsonb_strip_nulls(jsonb_build_object(
                'sequence', v.sequence,
                'recordedAt', to_char(v.recorded_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'),
                'validUntil', v.valid_until,
                'revokedAt', v.revoked_at
            ))
            ORDER BY v.sequence
        ) FILTER (WHERE v.sequence IS NOT NULL),
        '[]'
    )
FROM signing_key k
LEFT JOIN key_validity v ON v.organization_id = k.organization_id AND v.key_id = k.key_id
WHERE k.organization_id = %(organization_id)s AND k.key_id = ANY(%(key_ids)s::text[])
GROUP BY k.organization_id, k.key_id
ORDER BY k.key_id
