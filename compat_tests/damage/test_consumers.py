"""Bits of a log flip while the broker is down: each client reads all but the damaged batch, without help."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.wire.batch import HEADER_SIZE, Record, build_batch, iter_batches
from compat_tests.aiokafka.driver import AiokafkaDriver
from compat_tests.broker_process import Barnabas
from compat_tests.confluent.driver import ConfluentDriver
from compat_tests.crash.segments import segment_files
from compat_tests.driver import Driver
from compat_tests.java.driver import JavaDriver
from compat_tests.kafka_python.driver import KafkaPythonDriver
from compat_tests.kafkajs.driver import KafkajsDriver
from compat_tests.kcat.driver import KcatDriver
from compat_tests.lies.test_batches import created, produced
from compat_tests.pipe import Pipe
from compat_tests.tools import missing

CLIENTS: list[type[Driver]] = [
    KafkaPythonDriver,
    AiokafkaDriver,
    ConfluentDriver,
    KcatDriver,
    KafkajsDriver,
    JavaDriver,
]
BATCHES, EACH, DAMAGED = 40, 10, 7
LENGTH_AT = 8
#: Each damage: the position of the byte in its batch, and the bits that flip.
DAMAGES = {
    "a payload": (HEADER_SIZE + 20_000, 0x10),
    "a length that grows": (LENGTH_AT + 2, 0x10),
    "a length that shrinks": (LENGTH_AT + 3, 0xFF),
    "a length beyond the segment": (LENGTH_AT, 0x20),
}


def value(number: int) -> bytes:
    return b"%d-" % number + random.Random(number).randbytes(3000).hex().encode()


def damage(path: Path, batch: int, at: int, bits: int) -> None:
    """Flip bits of a batch in the middle of a segment."""
    data = bytearray(path.read_bytes())
    starts = [0]
    for _, view in iter_batches(data):
        starts.append(starts[-1] + len(view))
    assert batch + 1 < len(starts)
    data[starts[batch] + at] ^= bits
    path.write_bytes(data)


def topic_of(kind: type[Driver], what: str) -> str:
    """A topic of the client's own for each damage: the first one who reads it has it set aside."""
    return f"t-{CLIENTS.index(kind)}-{list(DAMAGES).index(what)}"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Barnabas]:
    server = Barnabas(tmp_path_factory.mktemp("broker"), {"barnabas.streams.driver": "none"})
    server.expected_errors.append("log.damaged")
    topics = {topic_of(kind, what): what for kind in CLIENTS for what in DAMAGES}
    batches = [
        build_batch([Record(b"k", value(batch * EACH + n), 1_700_000_000_000 + batch) for n in range(EACH)])
        for batch in range(BATCHES)
    ]
    with server:
        with Pipe(server.port) as pipe:
            for topic in topics:
                created(pipe, topic, segment_bytes=str(1 << 20))
                with Pipe(server.port_of(topic)) as leader:
                    assert {produced(leader, topic, batch).error_code for batch in batches} == {0}
        assert server.stop() == 0
        for topic, what in topics.items():
            assert len(segment_files(server.data_dir, topic, 0)) > 2
            damage(server.segment(topic), DAMAGED, *DAMAGES[what])
        server.start()
        yield server
        assert server.stop() == 0
    assert server.errors() == []


@pytest.mark.parametrize("what", DAMAGES)
@pytest.mark.parametrize("kind", CLIENTS, ids=lambda kind: kind.name)
def test_a_client_reads_all_but_the_damaged_batch(kind: type[Driver], what: str, broker: Barnabas) -> None:
    if kind.tool and (reason := missing(kind.tool)):
        pytest.skip(reason)
    topic = topic_of(kind, what)
    client = kind(broker.address)
    lost = range(DAMAGED * EACH, (DAMAGED + 1) * EACH)
    expected = [n for n in range(BATCHES * EACH) if n not in lost]
    found = client.consume(topic, len(expected))
    client.close()
    assert [record.offset for record in found] == expected
    assert [record.value for record in found] == [value(n) for n in expected]
    lines = [
        line for line in broker.log_file.read_text().splitlines() if "log.damaged" in line and f"topic={topic} " in line
    ]
    assert len(lines) == 1
    assert broker.segment(topic).name in lines[0]
