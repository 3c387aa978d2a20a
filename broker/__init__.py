"""The trio server: listeners, connections, one file for each API, and configuration."""
