"""Reading over several requests: fetch sessions, which remember a client's partitions, and look-ups by time."""
