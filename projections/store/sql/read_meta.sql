SELECT store_version, consumer, version, variant, organization_id FROM projection_meta
