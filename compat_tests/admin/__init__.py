"""What admin clients say and are told, on the wire: the same against Apache Kafka (`--peer`)."""
