"""Keys and certificates as Kafka's settings name them, for both sides of TLS: the broker's and the client's."""
