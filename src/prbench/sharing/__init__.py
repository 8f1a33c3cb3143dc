"""Results that travel: exporters of finished runs (one module each, by name in the registry), and uploads to a hub."""
