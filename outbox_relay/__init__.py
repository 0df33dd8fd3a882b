"""Publishes the log in shard order to the broker: one publisher per shard, nothing lost, doubled or reordered."""
