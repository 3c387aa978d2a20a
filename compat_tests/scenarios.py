"""The scenarios that every client must pass, written once for all clients: each scenario uses one `Driver`.

Another client (`bench.other`) reads the records of the client under test, and the other way round, so that an error
which a client and the broker share does not go unseen. `--peer` runs the same scenarios against Apache Kafka.
"""

from __future__ import annotations

import contextlib
import itertools
import struct
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from compat_tests.broker_process import Server
from compat_tests.driver import BEGINNING, CODECS, At, Driver, Member, Record, Refused, wait_for_records
from compat_tests.waiting import until

_numbers = itertools.count(1)


@dataclass
class Bench:
    """The clients, the server and the names that a scenario uses."""

    client: Driver
    other: Driver
    server: Server
    new_server: Callable[[dict[str, str]], Server]
    label: str = "scenario"
    stack: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)

    def name(self) -> str:
        """A new name, which no scenario has used yet."""
        return f"{self.label}-{next(_numbers)}"

    def topic(self, partitions: int = 1, **configs: str) -> str:
        """A new topic."""
        name = self.name()
        self.other.create_topic(name, partitions, {key.replace("_", "."): value for key, value in configs.items()})
        self.wait_for_topic(name, partitions)
        return name

    def wait_for_topic(self, name: str, partitions: int) -> None:
        """Return when a client sees a topic; Apache Kafka answers a creation earlier."""
        until(lambda: self.other.topics().get(name) == partitions, f"{name} with {partitions} partitions")

    def join(
        self, group: str, topic: str, latest: bool = False, instance: str | None = None, strategy: str = "range"
    ) -> Member:
        """Join a group with the client under test; the member is closed at the end of the scenario."""
        member = self.client.join(group, topic, latest=latest, instance=instance, strategy=strategy)
        self.stack.callback(member.close)
        return member


@dataclass(frozen=True)
class Scenario:
    """A function that takes a bench, and its title in the report."""

    name: str
    title: str
    run: Callable[[Bench], None]
    slow: bool = False


SCENARIOS: list[Scenario] = []


def scenario(title: str, slow: bool = False) -> Callable[[Callable[[Bench], None]], Callable[[Bench], None]]:
    """Add a function to the list."""

    def add(function: Callable[[Bench], None]) -> Callable[[Bench], None]:
        SCENARIOS.append(Scenario(function.__name__.lstrip("_"), title, function, slow))
        return function

    return add


def numbered(count: int, start: int = 0, partition: int | None = 0) -> list[Record]:
    """Records whose values are their numbers."""
    return [Record(b"record %d" % number, partition=partition) for number in range(start, start + count)]


def values(records: list[Record]) -> list[bytes | None]:
    """The values of `numbered` records."""
    return [record.value for record in records]


# --- produce ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class StoredBatch:
    """The header of a record batch as it lies in a segment."""

    size: int
    codec: str
    count: int
    producer_id: int
    base_sequence: int


def stored_batches(segment: Path) -> Iterator[StoredBatch]:
    """The batches of a segment file; the format is Kafka's own, so this reads Apache Kafka's files too."""
    data = segment.read_bytes()
    position = 0
    while position + 61 <= len(data):
        (length,) = struct.unpack_from(">i", data, position + 8)
        if length <= 0:
            return
        attributes, producer_id, _, sequence, count = struct.unpack_from(">h20xqhii", data, position + 21)
        yield StoredBatch(12 + length, CODECS[attributes & 7], count, producer_id, sequence)
        position += 12 + length


def _produces_with(codec: str) -> None:
    def run(bench: Bench) -> None:
        topic = bench.topic()
        text = b"a value that compresses well, " * 20
        expected = []
        for acks in (
            "all",
            "1",
            "0",
        ):  # acks=0 comes last: Apache Kafka may drop its records just after the topic's creation
            records = [Record(b"%s %s %d" % (text, acks.encode(), i), partition=0) for i in range(20)]
            bench.client.produce(topic, records, codec=codec, acks=acks)
            expected += values(records)
            assert values(bench.other.consume(topic, len(expected))) == expected
        # A client that believes that the broker does not know a codec silently sends uncompressed batches.
        assert {batch.codec for batch in stored_batches(bench.server.segment(topic))} == {codec}

    SCENARIOS.append(Scenario(f"produce_{codec}", f"produce: codec {codec}; acks 0, 1, all", run))


for _codec in CODECS:
    _produces_with(_codec)


@scenario("produce: keys")
def produce_keys(bench: Bench) -> None:
    topic = bench.topic()
    sent = [(b"k1", b"v1"), (b"k2", b"v2"), (b"k1", b"v3"), ("ключ".encode(), "значение".encode())]
    bench.client.produce(topic, [Record(value, key, partition=0) for key, value in sent])
    assert [(r.key, r.value) for r in bench.other.consume(topic, 4)] == sent


@scenario("produce: null values")
def produce_null_values(bench: Bench) -> None:
    topic = bench.topic()
    bench.client.produce(topic, [Record(None, b"gone", partition=0), Record(b"here", b"kept", partition=0)])
    assert [(r.key, r.value) for r in bench.other.consume(topic, 2)] == [(b"gone", None), (b"kept", b"here")]


@scenario("produce: headers")
def produce_headers(bench: Bench) -> None:
    topic = bench.topic()
    headers = (("trace", b"abc"), ("trace", b"again"), ("second", b"2"))
    bench.client.produce(topic, [Record(b"v", headers=headers, partition=0)])
    (record,) = bench.other.consume(topic, 1)
    assert record.headers == headers


@scenario("produce: to a chosen partition")
def produce_partition(bench: Bench) -> None:
    topic = bench.topic(4)
    for partition in (3, 0):
        bench.client.produce(topic, numbered(5, 10 * partition, partition))
    for partition in (3, 0):
        got = bench.other.consume(topic, 5, partition=partition)
        assert values(got) == values(numbered(5, 10 * partition))


@scenario("produce: a chosen timestamp")
def produce_timestamp(bench: Bench) -> None:
    topic = bench.topic()
    stamp = int(time.time() * 1000) - 3_600_000
    bench.client.produce(topic, [Record(b"old", partition=0, timestamp=stamp)])
    assert [r.timestamp for r in bench.other.consume(topic, 1)] == [stamp]


@scenario("produce: the key chooses the partition")
def produce_by_key(bench: Bench) -> None:
    topic = bench.topic(4)
    bench.client.produce(topic, [Record(b"%d" % i, b"key %d" % (i % 10)) for i in range(100)])
    places: dict[bytes | None, set[int | None]] = {}
    for record in bench.other.consume(topic, 100, partition=None):
        places.setdefault(record.key, set()).add(record.partition)
    assert len(places) == 10
    assert all(len(partitions) == 1 for partitions in places.values())
    assert len(set().union(*places.values())) > 1


LIMIT = 200_000


def _varint_size(number: int) -> int:
    """Bytes of a zigzag varint."""
    number = (number << 1) ^ (number >> 63)
    return max(1, (number.bit_length() + 6) // 7)


def _value_for_batch_of(size: int) -> bytes:
    """A value whose batch, alone and without key and headers, has `size` bytes."""
    for length in range(size - 61, 0, -1):
        body = 1 + 1 + 1 + _varint_size(-1) + _varint_size(length) + length + 1
        if 61 + _varint_size(body) + body == size:
            return b"x" * length
    raise ValueError(size)


@scenario("produce: values of 1 byte up to max.message.bytes")
def produce_sizes(bench: Bench) -> None:
    topic = bench.topic(max_message_bytes=str(LIMIT))
    sent = [b"x", b"x" * 1_000, b"x" * 100_000, _value_for_batch_of(LIMIT)]
    for value in sent:
        bench.client.produce(topic, [Record(value, partition=0)])
    assert values(bench.other.consume(topic, len(sent))) == sent
    assert max(batch.size for batch in stored_batches(bench.server.segment(topic))) == LIMIT


@scenario("produce: one byte above max.message.bytes is MESSAGE_TOO_LARGE")
def produce_too_large(bench: Bench) -> None:
    topic = bench.topic(max_message_bytes=str(LIMIT))
    with pytest.raises(Refused, match=r"M(ESSAGE|SG_SIZE)_TOO_LARGE"):  # the second one is librdkafka's name
        bench.client.produce(topic, [Record(_value_for_batch_of(LIMIT + 1), partition=0)])
    bench.client.produce(topic, [Record(b"still works", partition=0)])
    assert values(bench.other.consume(topic, 1)) == [b"still works"]


@scenario("produce: idempotent")
def produce_idempotent(bench: Bench) -> None:
    topic = bench.topic()
    bench.client.produce(topic, numbered(50), idempotent=True)
    assert values(bench.other.consume(topic, 50)) == values(numbered(50))
    batches = list(stored_batches(bench.server.segment(topic)))
    assert all(batch.producer_id >= 0 for batch in batches)
    assert [b.base_sequence for b in batches] == [0, *itertools.accumulate(b.count for b in batches[:-1])]


# --- consume ----------------------------------------------------------------------------------------------------------


@scenario("consume: from the beginning")
def consume_beginning(bench: Bench) -> None:
    topic = bench.topic()
    bench.other.produce(topic, numbered(20))
    got = bench.client.consume(topic, 20, BEGINNING)
    assert values(got) == values(numbered(20))
    assert [r.offset for r in got] in (list(range(20)), [None] * 20)


@scenario("consume: keys, headers, null values, timestamps")
def consume_fields(bench: Bench) -> None:
    topic = bench.topic()
    stamp = int(time.time() * 1000) - 60_000
    sent = [
        Record(b"v", b"k", (("h1", b"1"), ("h2", b"2")), 0, stamp, 0),
        Record(None, b"tombstone", (), 0, stamp + 1, 1),
        Record(b"no key", None, (), 0, stamp + 2, 2),
    ]
    bench.other.produce(topic, sent)
    assert bench.client.consume(topic, 3) == sent


@scenario("consume: every codec")
def consume_codecs(bench: Bench) -> None:
    topic = bench.topic()
    sent = []
    for number, codec in enumerate(CODECS):
        records = [Record(b"compressible " * 20 + b"%d" % i, partition=0) for i in range(10 * number, 10 * number + 10)]
        bench.other.produce(topic, records, codec=codec)
        sent += values(records)
    assert values(bench.client.consume(topic, len(sent))) == sent


@scenario("consume: only what is new")
def consume_latest(bench: Bench) -> None:
    topic = bench.topic()
    bench.other.produce(topic, numbered(20))
    member = bench.join(bench.name(), topic, latest=True)
    until(lambda: member.failure or member.assigned, "a partition is assigned")
    written = 20
    # The client looks the offset up some time after the assignment, so records are written until one arrives.
    end = time.monotonic() + 20
    while not member.records and not member.failure:
        assert time.monotonic() < end, "nothing new arrived"
        bench.other.produce(topic, numbered(1, written))
        written += 1
        with contextlib.suppress(AssertionError):
            until(lambda: member.records, "a record", 0.2)
    first = int((member.records[0].value or b"").split()[1])
    assert first >= 20, "old records were read"
    bench.other.produce(topic, numbered(10, written))
    wait_for_records(member, written + 10 - first)
    assert member.values() == values(numbered(written + 10 - first, first))


@scenario("consume: from an offset")
def consume_offset(bench: Bench) -> None:
    topic = bench.topic()
    bench.other.produce(topic, numbered(20))  # one batch, so that the offset lies inside
    assert values(bench.client.consume(topic, 7, At("offset", 13))) == values(numbered(7, 13))


@scenario("consume: from a timestamp")
def consume_timestamp(bench: Bench) -> None:
    topic = bench.topic()
    stamp = int(time.time() * 1000) - 3_600_000
    records = [Record(b"record %d" % i, partition=0, timestamp=stamp + 1000 * i) for i in range(20)]
    for start in (0, 5, 10, 15):
        bench.other.produce(topic, records[start : start + 5])
    got = bench.client.consume(topic, 8, At("timestamp", stamp + 11_500))
    assert values(got) == values(records[12:])


@scenario("consume: 2 MB in batches of 200 kB")
def consume_large(bench: Bench) -> None:
    topic = bench.topic()
    for number in range(10):
        bench.other.produce(topic, [Record(b"%d" % number * LIMIT, partition=0)])
    assert [v and v[:1] for v in values(bench.client.consume(topic, 10))] == [b"%d" % n for n in range(10)]


# --- groups -----------------------------------------------------------------------------------------------------------


def shares(members: list[Member]) -> list[int]:
    """The number of partitions of each member, the largest first."""
    return sorted((len(member.assigned) for member in members), reverse=True)


def wait_for_shares(members: list[Member], expected: list[int]) -> None:
    """Return when the members have these numbers of partitions, and each partition has exactly one member."""

    def settled() -> bool:
        for member in members:
            if member.failure:
                raise member.failure
        together = [p for member in members for p in member.assigned]
        return shares(members) == expected and len(set(together)) == sum(expected) == len(together)

    until(settled, f"shares {expected}, last {[sorted(m.assigned) for m in members]}")


@scenario("group: 1, 2, 3 and 5 members share 4 partitions evenly")
def group_shares(bench: Bench) -> None:
    topic, group = bench.topic(4), bench.name()
    members: list[Member] = []
    for size, expected in ((1, [4]), (2, [2, 2]), (3, [2, 1, 1]), (5, [1, 1, 1, 1, 0])):
        while len(members) < size:
            members.append(bench.join(group, topic))
        wait_for_shares(members, expected)
    for partition in range(4):
        bench.other.produce(topic, numbered(5, 10 * partition, partition))
    until(lambda: sum(len(m.records) for m in members) >= 20, "all records arrive")
    got = sorted(values([record for member in members for record in member.records]), key=str)
    assert got == sorted([v for p in range(4) for v in values(numbered(5, 10 * p))], key=str)


@scenario("group: members join and leave while records flow; none is lost")
def group_join_leave(bench: Bench) -> None:
    topic, group = bench.topic(4), bench.name()
    stop, written = threading.Event(), itertools.count()
    last = 0

    def write() -> None:
        nonlocal last
        while not stop.wait(0.05):
            batch = [Record(b"record %d" % n, partition=n % 4) for n in itertools.islice(written, 20)]
            bench.other.produce(topic, batch)
            last += 20

    writer = threading.Thread(target=write)
    writer.start()
    try:
        members = [bench.join(group, topic)]
        wait_for_shares(members, [4])
        wait_for_records(members[0], 10)
        members.append(bench.join(group, topic))
        wait_for_shares(members, [2, 2])
        members.append(bench.join(group, topic))
        wait_for_shares(members, [2, 1, 1])
        members[0].close()
        wait_for_shares(members[1:], [2, 2])
    finally:
        stop.set()
        writer.join()
    expected = set(values(numbered(last)))

    def missing() -> set[bytes | None]:
        return expected.difference(*(member.values() for member in members))

    until(lambda: len(missing()) <= bench.client.lost_by_close, f"all {last} records arrive")


@scenario("group: another member goes on behind the commit")
def group_resume(bench: Bench) -> None:
    topic, group = bench.topic(), bench.name()
    bench.other.produce(topic, numbered(7))
    assert values(bench.client.consume_in_group(group, topic, 3)) == values(numbered(3))
    assert bench.other.committed(group, topic) == {0: 3}
    assert values(bench.client.consume_in_group(group, topic, 4)) == values(numbered(4, 3))
    assert bench.other.committed(group, topic) == {0: 7}


@scenario("group: two groups do not share progress")
def group_two(bench: Bench) -> None:
    topic, first, second = bench.topic(), bench.name(), bench.name()
    bench.other.produce(topic, numbered(6))
    assert values(bench.client.consume_in_group(first, topic, 4)) == values(numbered(4))
    assert values(bench.client.consume_in_group(second, topic, 2)) == values(numbered(2))
    assert values(bench.client.consume_in_group(first, topic, 2)) == values(numbered(2, 4))
    assert values(bench.client.consume_in_group(second, topic, 4)) == values(numbered(4, 2))


@scenario("group: a commit survives kill -9 of the broker")
def group_kill(bench: Bench) -> None:
    topic, group = bench.topic(), bench.name()
    bench.other.produce(topic, numbered(8))
    assert values(bench.client.consume_in_group(group, topic, 3)) == values(numbered(3))
    bench.server.kill()
    bench.server.start()
    assert values(bench.client.consume_in_group(group, topic, 5)) == values(numbered(5, 3))


@scenario("group: a static member comes back to its partitions without a rebalance")
def group_static(bench: Bench) -> None:
    topic, group = bench.topic(4), bench.name()
    first = bench.join(group, topic, instance="instance-a")
    second = bench.join(group, topic, instance="instance-b")
    wait_for_shares([first, second], [2, 2])

    def comes_back(leaves: Member, turn: int) -> tuple[Member, bool]:
        """The member that came back, and whether the other one kept its assignment."""
        before, seen = leaves.assigned, len(second.assignments)
        leaves.close()
        again = bench.join(group, topic, instance="instance-a")
        until(lambda: again.failure or again.assigned == before, f"partitions {sorted(before)} again")
        for partition in range(4):
            bench.other.produce(topic, numbered(5, 100 * turn + 10 * partition, partition))
        until(lambda: len(again.records) >= 10 and len(second.records) >= 10 * (turn + 1), "both read")
        return again, len(second.assignments) == seen

    # A client whose metadata arrives late joins twice. If it leads the group, its second join is a rebalance, for Kafka
    # too. So one return without a rebalance is enough.
    for turn in range(5):
        first, kept = comes_back(first, turn)
        if kept:
            break
    assert kept, "the other member was rebalanced each time"


@scenario("group: cooperative rebalance moves only what must move")
def group_cooperative(bench: Bench) -> None:
    topic, group = bench.topic(4), bench.name()
    first = bench.join(group, topic, strategy="cooperative")
    wait_for_shares([first], [4])
    second = bench.join(group, topic, strategy="cooperative")
    wait_for_shares([first, second], [2, 2])
    assert frozenset().union(*first.revocations) == second.assigned


# --- topics -----------------------------------------------------------------------------------------------------------


@scenario("topics: created by the first record")
def auto_create_on(bench: Bench) -> None:
    topic = bench.name()
    bench.client.produce(topic, numbered(3, partition=None))
    assert values(bench.other.consume(topic, 3, partition=None)) == values(numbered(3))


@scenario("topics: not created with auto.create.topics.enable=false")
def auto_create_off(bench: Bench) -> None:
    server = bench.new_server({"auto.create.topics.enable": "false"})
    client, topic = type(bench.client)(server.address), bench.name()
    bench.stack.callback(client.close)
    with pytest.raises(Refused):  # each client reports it in its own way; some only time out waiting for the topic
        client.produce(topic, numbered(1, partition=None))
    other = type(bench.other)(server.address)
    assert topic not in other.topics()
    other.create_topic(topic)
    client.produce(topic, numbered(1))
    assert values(other.consume(topic, 1)) == values(numbered(1))


@scenario("topics: 1,000 partitions")
def many_partitions(bench: Bench) -> None:
    topic = bench.topic(1000)
    chosen = (0, 1, 499, 500, 998, 999)
    for partition in chosen:
        bench.other.produce(topic, numbered(1, partition, partition))
    for partition in (0, 999):
        assert values(bench.client.consume(topic, 1, partition=partition)) == values(numbered(1, partition))
    bench.client.produce(topic, [Record(b"%d" % i, b"key %d" % i) for i in range(1000)])
    got = bench.other.consume(topic, 1000 + len(chosen), partition=None)
    assert len({record.partition for record in got}) > 500
    member = bench.join(bench.name(), topic)
    wait_for_records(member, 1000 + len(chosen))
    assert len(member.assigned) == 1000


@scenario("topics: create, delete, create again")
def topic_recreate(bench: Bench) -> None:
    topic = bench.name()
    bench.client.create_topic(topic, 2)
    bench.wait_for_topic(topic, 2)
    bench.other.produce(topic, numbered(5))
    with pytest.raises(Refused, match="TOPIC_ALREADY_EXISTS"):
        bench.client.create_topic(topic, 2)
    bench.client.delete_topic(topic)
    until(lambda: topic not in bench.other.topics(), "the topic is gone")
    bench.client.create_topic(topic, 1)
    bench.wait_for_topic(topic, 1)
    bench.client.produce(topic, numbered(2, 100))
    assert values(bench.client.consume(topic, 2)) == values(numbered(2, 100))


# --- administration ---------------------------------------------------------------------------------------------------


@scenario("admin: list topics")
def admin_list(bench: Bench) -> None:
    one, four = bench.topic(1), bench.topic(4)
    listed = bench.client.topics()
    assert (listed[one], listed[four]) == (1, 4)


@scenario("admin: create a topic with settings, read and change them")
def admin_configs(bench: Bench) -> None:
    topic = bench.name()
    bench.client.create_topic(topic, 1, {"retention.ms": "3600000"})
    shown = bench.client.topic_config(topic)
    assert shown["retention.ms"] == "3600000"
    assert shown["cleanup.policy"] == "delete"
    bench.client.set_topic_config(topic, "max.message.bytes", "12345")
    until(lambda: bench.client.topic_config(topic)["max.message.bytes"] == "12345", "the change is seen")


@scenario("admin: list groups and their offsets")
def admin_groups(bench: Bench) -> None:
    topic, group = bench.topic(), bench.name()
    bench.other.produce(topic, numbered(5))
    bench.other.consume_in_group(group, topic, 5)
    assert group in bench.client.groups()
    assert bench.client.committed(group, topic) == {0: 5}
