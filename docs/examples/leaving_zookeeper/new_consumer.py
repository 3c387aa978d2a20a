"""A consumer of today, which commits to the broker: new_consumer.py SERVER GROUP TOPIC [COUNT]"""

import sys

from confluent_kafka import Consumer


def main() -> None:
    server, group, topic = sys.argv[1:4]
    left = int(sys.argv[4]) if len(sys.argv) > 4 else -1
    consumer = Consumer(
        {
            "bootstrap.servers": server,
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "error",  # there is a committed offset: anything else would be a surprise
        }
    )
    consumer.subscribe([topic])
    while left:
        record = consumer.poll(1)
        if record is None:
            continue
        if record.error() is not None:
            sys.exit(str(record.error()))
        print(record.value().decode(), flush=True)
        consumer.commit(record, asynchronous=False)
        left -= 1
    consumer.close()


if __name__ == "__main__":
    main()
