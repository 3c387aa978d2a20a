"""Readings of a device: sensor.py SERVER COUNT [FIRST]. Each is on disk when it counts as written."""

import json
import math
import sys
import time

from confluent_kafka import Producer


def main() -> None:
    server, count = sys.argv[1], int(sys.argv[2])
    first = int(sys.argv[3]) if len(sys.argv) > 3 else 0
    # Sent again until it is there, in order, and not twice: however long the broker is away.
    patient = {"enable.idempotence": True, "message.timeout.ms": 0}
    producer = Producer({"bootstrap.servers": server, **patient})
    for number in range(first, first + count):
        reading = {"n": number, "temp": round(20 + 5 * math.sin(number / 60), 2), "at": time.time_ns() // 1_000_000}
        producer.produce("readings", json.dumps(reading), "device-1")
        producer.poll(0)
    producer.flush()
    print(f"{count} readings are written")


if __name__ == "__main__":
    main()
