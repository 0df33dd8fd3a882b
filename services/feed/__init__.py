"""What every process that runs projections has in common: history by signed reads, and counters of what was applied."""
