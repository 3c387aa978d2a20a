"""The trio server: listeners, connections, one file per API, configuration."""
