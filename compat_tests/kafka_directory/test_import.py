"""`barnabas import-kafka-logs` takes over all that a real Kafka has written, down to each record."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from barnabas.wire.errors import ErrorCode
from compat_tests.apache_kafka import CLUSTER_ID, ApacheKafka
from compat_tests.broker_process import Barnabas, Server
from compat_tests.history.faults import ShiftedBarnabas
from compat_tests.kafka_directory import written
from compat_tests.kafka_directory.written import PARTITIONS, TOPICS, Content, Idempotent
from compat_tests.tools import ROOT, missing
from compat_tests.waiting import until


def import_kafka_logs(source: Path, target: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "barnabas", "import-kafka-logs", str(source), "--data-dir", str(target), *options]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)


class FromKafka(NamedTuple):
    """A data directory of a stopped Kafka, and its content as clients saw it."""

    path: Path
    content: Content
    last: Idempotent


def digest(path: Path) -> str:
    """A digest of the names and bytes of all files below a folder."""
    found = hashlib.sha256()
    for file in sorted(path.rglob("*")):
        found.update(str(file.relative_to(path)).encode())
        if file.is_file():
            found.update(file.read_bytes())
    return found.hexdigest()


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FromKafka]:
    if reason := missing("java"):
        pytest.skip(reason)
    kafka = ApacheKafka(tmp_path_factory.mktemp("kafka"), written.KAFKA_SETTINGS)
    with kafka:
        open_transaction, last = written.write_all(kafka)
        held = written.content(kafka)
        kafka.stop()
        del open_transaction
        yield FromKafka(kafka.data_dir, held, last)


@pytest.fixture(scope="module")
def ours(kafka: FromKafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Barnabas]:
    """A barnabas broker that serves the imported directory."""
    ours = Barnabas(tmp_path_factory.mktemp("ours"))
    before = digest(kafka.path)
    done = import_kafka_logs(kafka.path, ours.data_dir, "--link")
    assert done.returncode == 0, done.stderr
    assert f"barnabas serve --data-dir {ours.data_dir}" in done.stdout
    with ours:
        yield ours
        ours.stop()
        assert ours.errors() == []
    assert digest(kafka.path) == before, "Kafka's directory is as it was"


def test_every_record_is_where_it_was(kafka: FromKafka, ours: Barnabas) -> None:
    held, found = kafka.content, written.content(ours)
    for isolation, topics in held.records.items():
        for topic, expected in topics.items():
            assert found.records[isolation][topic] == expected, (isolation, topic)
    assert found.bounds == held.bounds
    assert held.bounds["deleted"] == [(7, 20)] * PARTITIONS
    values = {value for *_, value, _ in held.records["read_committed"]["transactional"]}
    assert values == {b"first"}, "the open transaction holds back what comes after it"
    assert len(held.records["read_committed"]["codecs"]) == 5 * 500 * PARTITIONS
    assert len(held.records["read_committed"]["compacted"]) < 6 * 40 * PARTITIONS


def test_topics_have_their_ids_partitions_and_settings(kafka: FromKafka, ours: Barnabas) -> None:
    held, found = kafka.content.topics, written.topics(ours)
    assert found == held
    assert found.configs["deleted"]["max.message.bytes"] == "1234567", "set after the metadata snapshot"
    assert found.configs["compacted"].items() >= TOPICS["compacted"].items(), "set before it"
    assert found.partitions["__consumer_offsets"] == 3
    assert f"cluster.id={CLUSTER_ID}" in (ours.data_dir / "meta.properties").read_text()


def test_groups_go_on_where_they_were(kafka: FromKafka, ours: Barnabas) -> None:
    assert written.positions(ours, "classic", "codecs") == {0: 10, 1: 11, 2: 12}
    assert written.positions(ours, "modern", "codecs") == {0: 20, 1: 21, 2: 22}
    written.join(ours, "classic", "codecs", 100)
    assert written.positions(ours, "classic", "codecs") == {0: 100, 1: 101, 2: 102}


def test_an_idempotent_producer_goes_on_with_its_sequence(kafka: FromKafka, ours: Barnabas) -> None:
    last = kafka.last
    again = written.send_idempotent(ours, last)
    assert (again.error_code, again.base_offset) == (0, last.offset), "a repeated batch is known"
    gap = written.send_idempotent(ours, last._replace(sequence=last.sequence + 6))
    assert gap.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    following = written.send_idempotent(ours, last._replace(sequence=last.sequence + 3))
    assert (following.error_code, following.base_offset) == (0, last.offset + 3)
    assert written.write_idempotent(ours).producer_id > last.producer_id, "no id is given out again"


def test_the_open_transaction_ends_with_the_next_producer_of_its_id(kafka: FromKafka, ours: Barnabas) -> None:
    writer = written.producer(ours, transactional_id="third")
    writer.init_transactions(30)
    writer.begin_transaction()
    written.send(writer, "transactional", [b"next"])
    writer.commit_transaction(30)
    values = {value for *_, value, _ in written.records(ours, "transactional", "read_committed")}
    assert values == {b"first", b"plain", b"next"}


@pytest.mark.long
def test_a_running_kafka_is_refused_and_a_killed_one_recovered(tmp_path: Path) -> None:
    if reason := missing("java"):
        pytest.skip(reason)
    with ApacheKafka(tmp_path / "kafka", written.KAFKA_SETTINGS) as kafka:
        written.create(kafka)
        written.write_codecs(kafka)
        open_transaction = written.write_transactions(kafka)
        held = written.content(kafka)
        done = import_kafka_logs(kafka.data_dir, tmp_path / "ours" / "data")
        assert (done.returncode, done.stderr) == (1, f"barnabas: a broker runs on {kafka.data_dir}: stop it first\n")
        kafka.kill()
        del open_transaction
    before = digest(kafka.data_dir)
    done = import_kafka_logs(kafka.data_dir, tmp_path / "ours" / "data")
    assert done.returncode == 0, done.stderr
    assert "not stopped cleanly: the logs will be recovered" in done.stdout
    assert digest(kafka.data_dir) == before
    ours = ShiftedBarnabas(tmp_path / "ours")
    with ours:
        assert written.content(ours) == held
        assert ours.stop() == 0
    ours.shift.write_text(str(written.TRANSACTION_TIMEOUT_MS))
    with ours:
        until(lambda: b"plain" in values(ours), "the open transaction is over by its timeout")
        assert values(ours) == {b"first", b"plain"}
        assert ours.stop() == 0
    assert ours.errors() == []


def values(server: Server) -> set[bytes | None]:
    return {value for *_, value, _ in written.records(server, "transactional", "read_committed")}
