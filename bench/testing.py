"""A hundred tests, each of which makes a topic, sends a record and reads it back, with our fixtures for pytest.

    python -m bench.testing [--tests 100]

It measures the whole run, and the median of ten times from `Broker().start()` until clients can connect.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from barnabas.testing import Broker
from compat_tests.tools import ROOT

_TESTS = """
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

@pytest.mark.parametrize("number", range({count}))
def test_orders(barnabas_broker, barnabas_topic, number):
    producer = Producer({{"bootstrap.servers": barnabas_broker.bootstrap_servers, "linger.ms": 0}})
    producer.produce(barnabas_topic, b"%d" % number)
    assert producer.flush(30) == 0
    consumer = Consumer({{"bootstrap.servers": barnabas_broker.bootstrap_servers, "group.id": "g"}})
    consumer.assign([TopicPartition(barnabas_topic, 0, 0)])
    assert consumer.poll(30).value() == b"%d" % number
    consumer.close()
"""


def start_seconds() -> float:
    began = time.perf_counter()
    with Broker():
        return time.perf_counter() - began


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tests", type=int, default=100)
    args = parser.parse_args()
    print(f"start: {statistics.median(start_seconds() for _ in range(10)):.2f} s")
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "test_orders.py").write_text(_TESTS.format(count=args.tests))
        words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
        began = time.perf_counter()
        subprocess.run([*words, folder], cwd=folder, env={"PYTHONPATH": str(ROOT)}, check=True)
        print(f"{args.tests} tests: {time.perf_counter() - began:.2f} s")


if __name__ == "__main__":
    main()
