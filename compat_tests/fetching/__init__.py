"""Fetch on the wire. `--peer` runs the same tests against Apache Kafka."""
