"""Kafka Streams with exactly_once_v2: words are counted correctly though the program and the broker are killed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from kafka.admin import KafkaAdminClient, NewTopic

from compat_tests.broker_process import Barnabas
from compat_tests.confluent.driver import ConfluentDriver
from compat_tests.ecosystem.jvm import Program
from compat_tests.tools import missing

HERE = Path(__file__).parent
PARTITIONS = 2
LINES = 1500
#: Each line has one of these words, and the two words that all lines have.
WORDS = [f"w{number}" for number in range(7)]
FAST = [("program", "broker")]
SLOW = [("broker", "program", "both") * 4]
SETTINGS = {
    "group.min.session.timeout.ms": "1000",
    "group.initial.rebalance.delay.ms": "0",
    "log.cleaner.backoff.ms": "500",
}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Barnabas]:
    if reason := missing("ecosystem"):
        pytest.skip(reason)
    with Barnabas(tmp_path / "broker", SETTINGS) as broker:
        admin = KafkaAdminClient(bootstrap_servers=broker.address)
        admin.create_topics([NewTopic(name, PARTITIONS, 1) for name in ("lines", "counts")])
        admin.close()
        yield broker


def when_written(address: str, total: int) -> Callable[[], None]:
    """A function that returns when `total` more counts are written; their transaction is most likely open then."""
    consumer = Consumer({"bootstrap.servers": address, "group.id": "w", "isolation.level": "read_uncommitted"})
    places = [TopicPartition("counts", number) for number in range(PARTITIONS)]
    for place in places:
        place.offset = consumer.get_watermark_offsets(place, 20)[1]
    consumer.assign(places)

    def wait() -> None:
        for _ in range(total):
            message = consumer.poll(60)
            assert message is not None, "no more counts are written"
            assert message.error() is None, message.error()
        consumer.close()

    return wait


class Counts:
    """The counts that a read_committed consumer sees, in order."""

    def __init__(self, address: str) -> None:
        self.of: dict[str, list[int]] = {}
        self.seen = 0
        self._consumer = Consumer(
            {
                "bootstrap.servers": address,
                "group.id": "reader",
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 10,
                "log_level": 0,
            }
        )
        self._consumer.assign([TopicPartition("counts", number, 0) for number in range(PARTITIONS)])
        self._at_end: set[int] = set()

    def _take(self) -> None:
        message = self._consumer.poll(60)
        assert message is not None, f"no more counts after {self.seen}"
        error: Any = message.error()
        if error is None:
            self._at_end.discard(message.partition())
            self.of.setdefault(message.key().decode(), []).append(int.from_bytes(message.value()))
            self.seen += 1
        elif error.code() == KafkaError._PARTITION_EOF:
            self._at_end.add(message.partition())

    def read(self, total: int) -> None:
        """Read until `total` counts were seen."""
        while self.seen < total:
            self._take()

    def read_to_the_end(self) -> None:
        self._at_end.clear()
        self._consumer.assign(self._consumer.position(self._consumer.assignment()))  # so that the end is reported again
        while len(self._at_end) < PARTITIONS:
            self._take()
        self._consumer.close()


def feed(address: str, first: int, count: int) -> None:
    """Write lines, a few at a time, so that the program has a transaction open all the while."""
    producer = Producer({"bootstrap.servers": address, "enable.idempotence": True, "log_level": 0})
    for number in range(first, first + count):
        producer.produce("lines", f"all each {WORDS[number % len(WORDS)]}", key=str(number))
        if number % 5 == 0:
            producer.flush()
    assert producer.flush(60) == 0


@pytest.mark.parametrize("kills", [*FAST, *(pytest.param(kills, marks=pytest.mark.slow) for kills in SLOW)])
def test_words_are_counted_exactly_once(broker: Barnabas, kills: tuple[str, ...], tmp_path: Path) -> None:
    source = (HERE / "WordCount.java", broker.address, tmp_path / "state", "lines", "counts")
    program = Program(tmp_path / "program", "RUNNING", *source)
    counts, lines = Counts(broker.address), 0
    with program, ThreadPoolExecutor(1) as feeder:
        for killed in kills:
            wait = when_written(broker.address, LINES)
            fed = feeder.submit(feed, broker.address, lines, LINES)
            lines += LINES
            wait()  # for a third of the new counts
            if killed != "broker":
                program.kill()
            if killed != "program":
                broker.kill()
                broker.start()
            if killed != "broker":
                program.start()
            fed.result()
            counts.read(3 * lines)
        assert program.stop() in (0, 128 + 15)
    counts.read_to_the_end()
    expected = {"all": lines, "each": lines} | {word: lines // len(WORDS) for word in WORDS}
    for number in range(lines - lines % len(WORDS), lines):
        expected[WORDS[number % len(WORDS)]] += 1
    # Each count from 1 on once, in order: nothing was counted twice, lost, or taken back.
    assert counts.of == {word: list(range(1, total + 1)) for word, total in expected.items()}
    assert "UNCAUGHT" not in program.log_file.read_text()
    assert not broker.errors()
    told = ConfluentDriver(broker.address).topic_config
    assert told("wordcount-counts-changelog")["cleanup.policy"] == "compact"
    assert told("wordcount-by-word-repartition")["cleanup.policy"] == "delete"
