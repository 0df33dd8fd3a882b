"""Quarantined Groups as their operators handle them: listed, shown, tried again, released, Events passed over."""
