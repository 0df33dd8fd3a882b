"""The floor under every separate process: settings, logs, statements, connections, health, metrics, run."""
