"""Keys and certificates as Kafka's settings name them, for the broker's side of TLS and for the client's."""
