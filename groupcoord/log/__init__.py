"""The coordinators' logs: records, what a log says when it is read, and when what was appended is durable."""
