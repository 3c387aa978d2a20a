"""The project's own Kafka client: blocking, small, on the broker's codecs. The command line and the readers use it."""
