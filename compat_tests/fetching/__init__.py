"""Fetch on the wire: the same against Apache Kafka (`--peer`)."""
