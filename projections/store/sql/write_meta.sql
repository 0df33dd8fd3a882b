INSERT INTO projection_meta (only_row, store_version, consumer, version, variant, organization_id)
VALUES (1, :store_version, :consumer, :version, :variant, :organization_id)
ON CONFLICT (only_row) DO UPDATE SET
    store_version = excluded.store_version, consumer = excluded.consumer, version = excluded.version,
    variant = excluded.variant, organization_id = excluded.organization_id
