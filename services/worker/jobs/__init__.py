"""Deterministic jobs: pure functions from input to result, cut into steps so that they can be resumed."""
