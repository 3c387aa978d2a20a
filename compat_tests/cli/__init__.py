"""The `barnabas` command against a real broker."""
