"""aiokafka as a read_committed consumer: prints the first COUNT values of a partition.

python consumer.py BOOTSTRAP TOPIC COUNT
"""

from __future__ import annotations

import asyncio
import sys

from aiokafka import AIOKafkaConsumer, TopicPartition


async def main() -> None:
    address, topic, count = sys.argv[1:]
    consumer = AIOKafkaConsumer(
        bootstrap_servers=address, isolation_level="read_committed", auto_offset_reset="earliest"
    )
    await consumer.start()
    consumer.assign([TopicPartition(topic, 0)])
    for _ in range(int(count)):
        print((await asyncio.wait_for(consumer.getone(), 20)).value.decode())
    await consumer.stop()


asyncio.run(main())
