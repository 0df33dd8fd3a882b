-- What a key vouched for since a moment, by kind of document.
SELECT document_kind, count(*)
FROM admission
WHERE organization_id = %(organization_id)s AND key_id = %(key_id)s AND trusted_accepted_at >= %(since)s
GROUP BY document_kind
ORDER BY document_kind
