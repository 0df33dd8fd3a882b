"""The usage report: what each Mission may spend, what its Work Contracts reserve of it, and what came of the work."""
