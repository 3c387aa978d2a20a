"""Temperatures of five machines, until it is stopped: machines.py SERVER [PER_SECOND]"""

import json
import random
import sys
import time

from confluent_kafka import Producer


def main() -> None:
    server, per_second = sys.argv[1], float(sys.argv[2]) if len(sys.argv) > 2 else 20.0
    producer = Producer({"bootstrap.servers": server, "linger.ms": 50})
    temps = {f"machine-{number}": 60.0 for number in range(5)}
    while True:
        machine = random.choice(list(temps))
        temps[machine] += random.uniform(-1, 1)
        reading = {"machine": machine, "temp": round(temps[machine], 2)}
        producer.produce("temperatures", json.dumps(reading), machine)
        producer.poll(0)
        time.sleep(1 / per_second)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        pass
