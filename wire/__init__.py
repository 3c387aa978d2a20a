"""The Kafka protocol: messages, record batches, compression and error codes. No I/O, no clock, no project import."""

#: The version of Apache Kafka whose protocol this is: messages, records on disk, error codes.
KAFKA_VERSION = "4.3"
