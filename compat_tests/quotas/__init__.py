"""Client quotas, with real clients."""
