"""Data that comes from elsewhere or goes there: Apache Kafka's data directories, and offsets in ZooKeeper."""
