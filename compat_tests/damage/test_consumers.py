"""Bits of a log flip while the broker is down: each client reads all but the damaged batch, without help."""

from __future__ import annotations

import random
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


@pytest.mark.parametrize("what", DAMAGES)
@pytest.mark.parametrize("kind", CLIENTS, ids=lambda kind: kind.name)
def test_a_client_reads_all_but_the_damaged_batch(kind: type[Driver], what: str, tmp_path: Path) -> None:
    if kind.tool and (reason := missing(kind.tool)):
        pytest.skip(reason)
    broker = Barnabas(tmp_path / "broker", {"barnabas.streams.driver": "none"})
    broker.expected_errors.append("log.damaged")
    with broker:
        with Pipe(broker.port) as pipe:
            created(pipe, "t", segment_bytes=str(1 << 20))
            for batch in range(BATCHES):
                records = [Record(b"k", value(batch * EACH + n), 1_700_000_000_000 + batch) for n in range(EACH)]
                assert produced(pipe, "t", build_batch(records)).error_code == 0
        assert broker.stop() == 0
        files = segment_files(broker.data_dir, "t", 0)
        assert len(files) > 2
        damage(files[0], DAMAGED, *DAMAGES[what])
        broker.start()
        client = kind(broker.address)
        lost = range(DAMAGED * EACH, (DAMAGED + 1) * EACH)
        expected = [n for n in range(BATCHES * EACH) if n not in lost]
        found = client.consume("t", len(expected))
        client.close()
        assert [record.offset for record in found] == expected
        assert [record.value for record in found] == [value(n) for n in expected]
        assert broker.stop() == 0
    lines = [line for line in broker.log_file.read_text().splitlines() if "log.damaged" in line]
    assert len(lines) == 1
    assert f"{files[0].name}" in lines[0]
    assert broker.errors() == []
