"""In and out: the data directories of Apache Kafka, and offsets on their way to ZooKeeper."""
