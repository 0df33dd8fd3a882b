"""The audit trail: every Event of every Group with who, what, when and why, to be searched."""
