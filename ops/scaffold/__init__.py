"""The scaffold of a new consumer: its files from `templates/`, and its entry in the listing."""
