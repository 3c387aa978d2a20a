"""The Kafka protocol: messages, record batches, compression and error codes. No I/O, no clock, no project import."""
