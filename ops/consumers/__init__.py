"""Projections as their operators handle them: listed, verified against the history, rebuilt beside the live version."""
