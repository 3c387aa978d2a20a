"""A consumer of the old kind, which commits to ZooKeeper: old_consumer.py SERVER ZOOKEEPER/CHROOT GROUP TOPIC [COUNT]

It reads partition 0, and ends after COUNT records, if that is given.
"""

import sys

from confluent_kafka import Consumer, TopicPartition
from kazoo.client import KazooClient


def main() -> None:
    server, zookeeper, group, topic = sys.argv[1:5]
    left = int(sys.argv[5]) if len(sys.argv) > 5 else -1
    client = KazooClient(zookeeper)
    client.start()
    path = f"/consumers/{group}/offsets/{topic}/0"
    client.ensure_path(path)
    at = int(client.get(path)[0] or 0)
    consumer = Consumer({"bootstrap.servers": server, "group.id": "none", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, at)])
    while left:
        record = consumer.poll(1)
        if record is None or record.error() is not None:
            continue
        print(record.value().decode(), flush=True)
        client.set(path, str(record.offset() + 1).encode())
        left -= 1
    consumer.close()
    client.stop()


if __name__ == "__main__":
    main()
