"""Requests of admin clients and their answers, on the wire. `--peer` runs the same tests against Apache Kafka."""
