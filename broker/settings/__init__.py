"""Configuration: Kafka's keys with types and defaults, `server.properties`, what DescribeConfigs shows and
AlterConfigs changes.
"""
