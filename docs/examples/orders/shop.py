"""Write orders: shop.py SERVER COUNT"""

import json
import random
import sys

from confluent_kafka import Producer


def main() -> None:
    server, count = sys.argv[1], int(sys.argv[2])
    producer = Producer({"bootstrap.servers": server, "enable.idempotence": True})
    for number in range(count):
        customer = f"customer-{random.randrange(50)}"
        order = {"id": number, "customer": customer, "cents": random.randrange(100, 100_000)}
        producer.produce("orders", json.dumps(order), customer)
        producer.poll(0)
    left = producer.flush(60)
    print(f"{count - left} orders are written")
    sys.exit(1 if left else 0)


if __name__ == "__main__":
    main()
