"""A broker for tests: real clients, a real broker process, ready in a fraction of a second.

    from barnabas.testing import Broker

    with Broker(num_partitions=3) as broker:
        producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers)

The package brings the fixtures `barnabas_broker` and `barnabas_topic` for pytest (`barnabas.testing.plugin`).
"""

from barnabas.testing.broker import Broker, BrokerError

__all__ = ["Broker", "BrokerError"]
