"""The process that runs server-side projections: it reads whole shards and owns its position in them."""
