"""A Worker's inbox and work queue per Group, made of Events alone (MWP-WRK-008)."""
