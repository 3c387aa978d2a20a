"""The coordinators' logs: their records, the state read from a log, and when appended records are durable."""
