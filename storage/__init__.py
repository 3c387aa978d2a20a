"""Vnodes and the data directory: every partition is one write-ahead log in Kafka's on-disk format."""
