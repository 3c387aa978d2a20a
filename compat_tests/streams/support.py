"""Functions that the tests of streams with a real broker share."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, NamedTuple

import msgspec
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from barnabas.client.cluster import Cluster
from barnabas.scripts.status import last_status
from compat_tests.broker_process import Barnabas
from compat_tests.driver import Refused
from compat_tests.kafka_python.driver import KafkaPythonDriver
from compat_tests.waiting import until

#: The records have old timestamps: retention, which runs every five minutes, would delete them.
SETTINGS = {
    "barnabas.streams.master": "local[2]",
    "barnabas.streams.driver.memory": "512m",
    "log.retention.ms": "-1",
}
SENSORS = {"barnabas.value.format": "json", "barnabas.value.schema": "device STRING, temp DOUBLE"}
#: A stream over a topic; `windows(readings, 10_000, 5_000)` gives its results.
SLIDING = (
    "AS SELECT _wstart, _wend, device, sum(temp) AS s, count(*) AS c FROM {} "
    "PARTITION BY device INTERVAL(10s) SLIDING(5s)"
)
#: A timestamp at which windows of whole minutes begin; brokers accept old timestamps.
BASE = 1_700_000_040_000
DEADLINE = 240.0


class Reading(NamedTuple):
    """A record, and its partition."""

    ts: int
    device: str
    temp: float
    partition: int


def readings(lo: int, hi: int) -> list[Reading]:
    """One reading for each second, of two devices in turn, all in partition 0."""
    return [Reading(BASE + 1000 * n, "ab"[n % 2], n, 0) for n in range(lo, hi)]


def make_stream(broker: Barnabas, topic: str, partitions: int, text: str) -> None:
    """Make a topic with the first stream of a broker: Spark's start may take longer than a client waits."""
    admin = KafkaPythonDriver(broker.address)

    def is_made() -> bool:
        try:
            admin.create_topic(topic, partitions, {"barnabas.stream": text})
        except Refused as refusal:
            assert str(refusal) == "REQUEST_TIMED_OUT", refusal
            return False
        return True

    until(is_made, f"{topic} is made", DEADLINE)


def send(broker: Barnabas, topic: str, readings: Iterable[Reading]) -> None:
    """Write readings; the timestamp of each record is the reading's."""
    producer = Producer({"bootstrap.servers": broker.address})
    for ts, device, temp, partition in readings:
        value = json.dumps({"device": device, "temp": temp}).encode()
        producer.produce(topic, value, partition=partition, timestamp=ts)
    assert producer.flush(60) == 0


def status_of(broker: Barnabas, name: str) -> dict[str, Any]:
    """The driver's last status of a stream."""
    with Cluster(broker.address) as cluster:
        status = last_status(cluster)
    found = [stream for stream in (status.streams if status else ()) if stream.name == name]
    return msgspec.structs.asdict(found[0]) if found else {}


def wait_for_state(broker: Barnabas, name: str, state: str, **more: Any) -> dict[str, Any]:
    """Return when a stream is in a state, and its figures are at least the given ones."""
    told: dict[str, Any] = {}

    def is_there() -> bool:
        told.update(status_of(broker, name))
        return told.get("state") == state and all(
            told[key] is not None and told[key] >= value for key, value in more.items()
        )

    until(is_there, f"{name} is {state} {more}", DEADLINE)
    return told


def results(broker: Barnabas, topic: str, partitions: int) -> list[dict[str, Any]]:
    """The values of a topic that a read_committed consumer reads."""
    return [json.loads(value) for _, value in records(broker, topic, partitions)]


def records(
    broker: Barnabas, topic: str, partitions: int, isolation: str = "read_committed"
) -> list[tuple[bytes | None, bytes]]:
    """The keys and values that a consumer reads, partition by partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.address,
            "group.id": "none",
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 10,
            "enable.auto.commit": False,
            "isolation.level": isolation,
        }
    )
    found = []
    try:
        for partition in range(partitions):
            consumer.assign([TopicPartition(topic, partition, 0)])
            while True:
                message = consumer.poll(30)
                assert message is not None, f"nothing more of {topic}-{partition}"
                error = message.error()
                if error is not None:
                    assert error.code() == KafkaError._PARTITION_EOF, error
                    break
                found.append((message.key(), message.value() or b""))
    finally:
        consumer.close()
    return found


def text(ms: int) -> str:
    """A time as results write it."""
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def windows(readings: Iterable[Reading], length: int, step: int) -> list[dict[str, Any]]:
    """The expected results, by a plain evaluation: sum and count by device and window, in order."""
    found: dict[tuple[int, str], list[float]] = defaultdict(list)
    for ts, device, temp, _ in readings:
        last = ts // step * step
        for start in range(last, ts - length, -step):
            found[start, device].append(temp)
    return in_order(
        {"_wstart": text(start), "_wend": text(start + length), "device": device, "s": sum(temps), "c": len(temps)}
        for (start, device), temps in found.items()
    )


def in_order(values: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Sorted by their text."""
    return sorted(values, key=lambda value: json.dumps(value, sort_keys=True))


def wait_for_results(broker: Barnabas, topic: str, partitions: int, count: int) -> list[dict[str, Any]]:
    """Return the results, once there are `count`."""
    found: list[dict[str, Any]] = []

    def are_there() -> bool:
        found[:] = results(broker, topic, partitions)
        return len(found) >= count

    until(are_there, f"{count} results of {topic}", DEADLINE)
    return in_order(found)
