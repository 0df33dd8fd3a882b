"""The mission board: every Mission with its state, Coordinator, WorkItems, members and last activity."""
