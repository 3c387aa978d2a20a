"""Apache Kafka starts on a directory that barnabas has written, and reads every file and record; and back again."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from confluent_kafka.admin import ResourceType

from compat_tests.apache_kafka import ApacheKafka
from compat_tests.broker_process import Barnabas
from compat_tests.java import tools
from compat_tests.kafka_directory import written
from compat_tests.kafka_directory.test_import import import_kafka_logs
from compat_tests.tools import missing

SETTINGS = {
    "log.cleaner.backoff.ms": "100",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
    "metadata.log.max.record.bytes.between.snapshots": "3000",
}


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, written.Content]:
    """A data directory of a stopped barnabas broker, and its content as clients saw it."""
    if reason := missing("java"):
        pytest.skip(reason)
    with Barnabas(tmp_path_factory.mktemp("ours"), SETTINGS) as ours:
        written.create(ours)
        written.write_codecs(ours)
        open_transaction = written.write_transactions(ours)
        written.write_deleted(ours)
        written.write_idempotent(ours)
        written.join(ours, "classic", "codecs", 10)
        written.write_compacted(ours, ours.data_dir)
        written.snapshotted(ours)
        written.alter(ours, ResourceType.TOPIC, "deleted", {"max.message.bytes": "1234567"})
        held = written.content(ours)
        assert ours.stop() == 0
        if ours.processes > 1:  # then the other nodes lead partitions, which a broker of one process takes over
            ours.processes = 1
            ours.start()
            assert ours.stop() == 0
        del open_transaction
    return ours.data_dir, held


def dump(paths: list[Path], *options: str) -> str:
    done = tools.run(tools.DUMP_LOG, "--files", ",".join(str(path) for path in paths), *options)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_kafkas_dump_tool_accepts_every_file(left: tuple[Path, written.Content]) -> None:
    path, _ = left
    suffixes = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")
    files = sorted(file for file in path.rglob("*") if file.suffix in suffixes)
    assert {file.suffix for file in files} == set(suffixes)
    shown = dump(files)
    for wrong in (
        "Found timestamp mismatch",
        "Index offset mismatch",
        "out of order",
        "Mismatches in",
        "isvalid: false",
    ):
        assert wrong not in shown
    of_metadata = path / "__cluster_metadata-0"
    snapshots = sorted(of_metadata.glob("*.checkpoint"))
    assert snapshots
    decoded = dump([*sorted(of_metadata.glob("*.log")), *snapshots], "--cluster-metadata-decoder")
    for kind in ("FEATURE_LEVEL_RECORD", "TOPIC_RECORD", "PARTITION_RECORD", "CONFIG_RECORD", "SnapshotFooter"):
        assert kind in decoded
    assert "Error" not in decoded
    offsets = [file for file in files if file.suffix == ".log" and file.parent.name.startswith("__consumer_offsets-")]
    assert '"group":"classic"' in dump(offsets, "--offsets-decoder")


@pytest.mark.long
def test_kafka_goes_on_with_it_and_barnabas_after_that(left: tuple[Path, written.Content], tmp_path: Path) -> None:
    path, held = left
    # Otherwise Kafka's cleaner would continue where ours stopped, while the test reads the records.
    kafka = ApacheKafka(tmp_path / "kafka", {**written.KAFKA_SETTINGS, "log.cleaner.enable": "false"})
    kafka.format()
    shutil.rmtree(kafka.data_dir)
    shutil.copytree(path, kafka.data_dir)
    with kafka:
        assert written.content(kafka) == held
        assert written.positions(kafka, "classic", "codecs") == {0: 10, 1: 11, 2: 12}
        writer = written.producer(kafka, transactional_id="third")
        writer.init_transactions(30)
        writer.begin_transaction()
        written.send(writer, "transactional", [b"next"])
        writer.commit_transaction(30)
        written.send(written.producer(kafka), "codecs", [b"from Kafka"])
        written.alter(kafka, ResourceType.TOPIC, "codecs", {"retention.bytes": "123456789"})
        written.join(kafka, "classic", "codecs", 50)
        done = tools.run(tools.FEATURES, "--bootstrap-server", kafka.address, "upgrade", "--release-version", "4.3")
        assert done.returncode == 0, done.stdout + done.stderr
        held = written.content(kafka)
        kafka.stop()

    again = Barnabas(tmp_path / "again")
    shutil.copytree(kafka.data_dir, again.data_dir)
    with pytest.raises(AssertionError, match="is a data directory of Apache Kafka: take it over with 'barnabas import"):
        again.start()
    shutil.rmtree(again.data_dir)
    done = import_kafka_logs(kafka.data_dir, again.data_dir)
    assert done.returncode == 0, done.stderr
    with again:
        assert written.content(again) == held
        assert written.positions(again, "classic", "codecs") == {0: 50, 1: 51, 2: 52}
        assert again.stop() == 0
    assert again.errors() == []
