"""Sources that fill topics. They are Kafka clients, and run in processes of their own."""
