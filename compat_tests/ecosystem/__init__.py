"""Kafka Streams, Kafka Connect and MirrorMaker 2 on a real broker."""
