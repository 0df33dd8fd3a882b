"""The protocol's vector bundles, run against this implementation (TRU-1 to TRU-4)."""
