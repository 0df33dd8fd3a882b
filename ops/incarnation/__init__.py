"""Incarnations of a history: what there are, whether the database is in doubt, and the decision to go on."""
