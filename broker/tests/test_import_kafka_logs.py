"""`barnabas import-kafka-logs`: reading the metadata, refusals, and the state after errors and kills."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path
from typing import Any

import pytest
import trio

from barnabas.broker.clock import Clock
from barnabas.broker.main import load_config
from barnabas.broker.metadata.image import METADATA_TOPIC, Leader, MetadataImage
from barnabas.broker.metadata.records import frame
from barnabas.broker.moving.import_kafka_logs import _take
from barnabas.broker.moving.import_plan import plan_of
from barnabas.broker.moving.kafka_metadata import read_metadata
from barnabas.broker.tests.kafka_folder import DIRECTORY_ID, TOPIC_ID, VALUES, KafkaFolder, partition, raw, topic
from barnabas.scripts.cli import main
from barnabas.storage.data_dir import DataDir
from barnabas.storage.errors import StorageError
from barnabas.storage.io import Io
from barnabas.storage.kafka_dir import KafkaDir
from barnabas.storage.report import tell_logging
from barnabas.storage.takeover import Takeover
from barnabas.wire.batch import Record, build_batch, iter_batches, iter_records
from barnabas.wire.records.cluster_metadata import (
    ConfigRecord,
    PartitionChangeRecord,
    ProducerIdsRecord,
    RemoveTopicRecord,
    TopicRecord,
)

OTHER_ID = bytes(range(32, 48))


@pytest.fixture
def kafka(tmp_path: Path) -> KafkaFolder:
    return KafkaFolder(tmp_path / "kafka")


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "ours"


def run(kafka: KafkaFolder, target: Path, *options: str) -> int:
    return main(["import-kafka-logs", str(kafka.path), "--data-dir", str(target), *options])


def served(target: Path) -> tuple[MetadataImage, list[bytes | None]]:
    """The content that a broker finds there: the metadata, and the values of the topic's records."""

    async def look() -> tuple[MetadataImage, list[bytes | None]]:
        async with DataDir.open(target, node_id=1) as directory:
            await directory.load()
            image = MetadataImage(1, Clock())
            image.load(directory.vnodes[METADATA_TOPIC, 0], directory.snapshots(METADATA_TOPIC, 0))
            values: list[bytes | None] = []
            vnode = directory.vnodes.get(("orders", 0))
            while vnode is not None and len(values) < vnode.log_end_offset:
                found = vnode.read(len(values), 1 << 20, max_offset=vnode.log_end_offset).slice
                assert found is not None
                for _, batch in iter_batches(found.read()):
                    values += [record.value for record in iter_records(batch)]
            return image, values

    return trio.run(look)


def test_topics_come_with_ids_settings_epochs_and_logs(kafka: KafkaFolder, target: Path) -> None:
    kafka.write(*topic(retention_ms="77"), ProducerIdsRecord(1, 1, 5000))
    kafka.write(PartitionChangeRecord(0, TOPIC_ID, leader=-1), PartitionChangeRecord(0, TOPIC_ID, isr=[1]))
    kafka.log()
    assert run(kafka, target) == 0
    image, values = served(target)
    assert values == VALUES
    orders = image.topics["orders"]
    assert (orders.topic_id, orders.configs) == (TOPIC_ID, {"retention.ms": "77"})
    assert orders.partitions == {0: Leader(1, 4 + 1 + 1)}, "one change of the leader, and the import is one"
    assert image.next_producer_id == 5000


def test_the_log_goes_on_behind_the_newest_whole_snapshot(
    kafka: KafkaFolder, target: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kafka.write(TopicRecord("never seen", OTHER_ID), raw(20))
    kafka.write(ConfigRecord(2, "orders", "retention.ms", "2"))
    kafka.snapshot(topic(retention_ms="1"), 2)
    newest = kafka.snapshot(topic(retention_ms="3"), 3)
    newest.write_bytes(newest.read_bytes()[:-30])
    assert run(kafka, target) == 0
    image, _ = served(target)
    assert set(image.topics) == {"orders"}
    assert image.topics["orders"].configs == {"retention.ms": "2"}
    assert newest.name in capsys.readouterr().out


def test_a_metadata_transaction_counts_when_it_is_ended(kafka: KafkaFolder, target: Path) -> None:
    kafka.write(raw(23), *topic(retention_ms="1"), raw(24))
    kafka.write(raw(23), RemoveTopicRecord(TOPIC_ID), raw(25))
    kafka.write(raw(23), RemoveTopicRecord(TOPIC_ID))
    assert run(kafka, target) == 0
    assert set(served(target)[0].topics) == {"orders"}


def test_a_checkpoint_that_kafka_has_not_yet_filled_is_nothing_to_tell(
    kafka: KafkaFolder, target: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kafka.write(*topic())
    kafka.log()
    (kafka.path / "cleaner-offset-checkpoint").touch()
    assert run(kafka, target) == 0
    assert capsys.readouterr().err == ""
    (kafka.path / "cleaner-offset-checkpoint").write_text("0\n")
    assert run(kafka, target, "--dry-run") == 1, "the target is not empty any more"
    assert "checkpoint.damaged" in capsys.readouterr().err


def test_what_is_left_is_listed(kafka: KafkaFolder, target: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kafka.write(*topic(retention_ms="77", no_such_key="1"), partition(1), raw(99, b"secret"), raw(20))
    kafka.write(
        ConfigRecord(4, "", "log.retention.ms", "5"),
        ConfigRecord(4, "", "no.such.password", "secret"),
        ConfigRecord(4, "2", "log.retention.ms", "6"),
        ConfigRecord(32, "g", "consumer.session.timeout.ms", "7"),
    )
    kafka.log()
    (kafka.path / "gone-0").mkdir()
    (kafka.path / "old-0.0123456789abcdef0123456789abcdef-delete").mkdir()
    assert run(kafka, target, "--dry-run") == 0
    assert not target.exists()
    assert run(kafka, target) == 0
    said = capsys.readouterr().out
    for what in (
        "records of the unknown type 99 (1)",
        "setting no.such.key of topic orders",
        "setting no.such.password of all brokers",
        "setting log.retention.ms of broker 2",
        "settings of group g (1)",
        "orders-1",
        "gone-0",
        "old-0.0123456789abcdef0123456789abcdef-delete",
    ):
        assert said.count(what) == 2, what
    assert "secret" not in said
    image, _ = served(target)
    assert image.broker_configs[""] == {"log.retention.ms": "5"}
    assert image.topics["orders"].configs == {"retention.ms": "77"}
    assert sorted(path.name for path in target.iterdir() if path.is_dir()) == ["__cluster_metadata-0", "orders-0"]


def _other_node(kafka: KafkaFolder) -> None:
    kafka.write(raw(0, (1).to_bytes(4, "big")), raw(0, (2).to_bytes(4, "big")))


def _other_controller(kafka: KafkaFolder) -> None:
    kafka.write(raw(27, (3).to_bytes(4, "big")))


def _old_format(kafka: KafkaFolder) -> None:
    segment = kafka.log() / f"{0:020}.log"
    data = bytearray(segment.read_bytes())
    data[16] = 1
    segment.write_bytes(data)


def _damage(kafka: KafkaFolder) -> None:
    kafka.write(*topic())
    log = kafka.metadata / f"{0:020}.log"
    log.write_bytes(log.read_bytes()[:-1])


def _newer_record(kafka: KafkaFolder) -> None:
    kafka.write(b"\x01\x02\x07")


def _starts_late(kafka: KafkaFolder) -> None:
    (kafka.metadata / f"{9:020}.log").write_bytes(build_batch([Record(None, raw(20), 1)], base_offset=9))


REFUSALS: list[tuple[Any, str]] = [
    (lambda kafka: (kafka.path / "meta.properties").unlink(), "is not a data directory of Kafka"),
    (lambda kafka: kafka.properties(version="0", **{"broker.id": "1"}), "with ZooKeeper: migrate it to KRaft first"),
    (lambda kafka: kafka.properties(version="1"), "is damaged: it needs the lines cluster.id and node.id"),
    (lambda kafka: (kafka.metadata / "quorum-state").unlink(), "serve it with 'barnabas serve'"),
    (lambda kafka: (kafka.metadata / "quorum-state").write_text("{"), "is damaged"),
    (lambda kafka: kafka.metadata.rename(kafka.path / "elsewhere"), "name the directory that has it"),
    (_other_node, "has other brokers, too (2)"),
    (_other_controller, "a quorum of other controllers, too (3)"),
    (lambda kafka: kafka.voters(1, 2), "a quorum of other controllers, too (2)"),
    (lambda kafka: kafka.write(TopicRecord("t", TOPIC_ID), partition(replicas=[1, 2])), "has replicas on nodes 1, 2"),
    (lambda kafka: kafka.write(*topic(remote_storage_enable="true")), "uses tiered storage"),
    (_old_format, "has message format 1"),
    (_damage, "is damaged at position 0"),
    (_newer_record, "has no version 7"),
    (_starts_late, "no whole snapshot"),
]


@pytest.mark.parametrize(("spoil", "expected"), REFUSALS)
def test_what_is_refused(
    kafka: KafkaFolder, target: Path, capsys: pytest.CaptureFixture[str], spoil: Any, expected: str
) -> None:
    spoil(kafka)
    assert run(kafka, target) == 1
    said = capsys.readouterr().err
    assert expected in said
    assert said.count("\n") == 1
    assert not target.exists()


def test_a_partition_in_another_log_directory_is_refused(
    kafka: KafkaFolder, target: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kafka.write(TopicRecord("orders", TOPIC_ID), frame(partition(directories=[DIRECTORY_ID]), 1))
    assert run(kafka, target, "--dry-run") == 0
    kafka.write(frame(PartitionChangeRecord(0, TOPIC_ID, directories=[OTHER_ID]), 1))
    assert run(kafka, target, "--dry-run") == 1
    assert "is in another log directory" in capsys.readouterr().err


def test_a_running_kafka_is_left_alone(kafka: KafkaFolder, target: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lock = kafka.path / ".lock"
    lock.touch()
    taken, told = os.pipe()
    done, end = os.pipe()
    child = os.fork()
    if not child:  # locks belong to a process
        descriptor = os.open(lock, os.O_RDWR)
        fcntl.lockf(descriptor, fcntl.LOCK_EX)
        os.write(told, b"1")
        os.read(done, 1)
        os._exit(0)
    os.read(taken, 1)
    try:
        assert run(kafka, target) == 1
        assert "a broker runs on" in capsys.readouterr().err
    finally:
        os.write(end, b"1")
        os.waitpid(child, 0)
        for descriptor in (taken, told, done, end):
            os.close(descriptor)
    kafka.write(*topic())
    assert run(kafka, target) == 0


def test_where_it_may_not_be_written(kafka: KafkaFolder, target: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kafka.write(*topic())
    assert run(kafka, kafka.path / "inside") == 1
    assert "is inside of" in capsys.readouterr().err
    target.mkdir()
    (target / "something").touch()
    assert run(kafka, target) == 1
    assert "is not empty" in capsys.readouterr().err
    (target / "something").unlink()
    assert run(kafka, target) == 0, "an empty directory will do"
    (kafka.path / ".kafka_cleanshutdown").unlink()
    assert run(kafka, target.with_name("linked"), "--link") == 1
    assert "leave out --link" in capsys.readouterr().err


def test_links_stay_on_one_file_system(kafka: KafkaFolder, capsys: pytest.CaptureFixture[str]) -> None:
    here = kafka.path.stat().st_dev
    others = (folder for folder in (Path("/dev/shm"), Path(__file__).parent) if folder.is_dir())
    elsewhere = next((folder for folder in others if folder.stat().st_dev != here), None)
    if elsewhere is None:
        pytest.skip("there is one file system only")
    kafka.write(*topic())
    assert run(kafka, elsewhere / "barnabas-import-that-is-refused", "--link") == 1
    assert "leave out --link" in capsys.readouterr().err


class Limited(Io):
    """Reports an exhausted resource at a given write."""

    def __init__(self, left: int, error: BaseException) -> None:
        self.left, self.error = left, error

    def _count(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise self.error

    def open(self, path: str, flags: int, mode: int = 0o666) -> int:
        if flags & os.O_CREAT:
            self._count()
        return super().open(path, flags, mode)

    def mkdir(self, path: str) -> None:
        self._count()
        super().mkdir(path)

    def pwritev(self, fd: int, parts: Any, position: int) -> int:
        self._count()
        return super().pwritev(fd, parts, position)

    def copy(self, source_fd: int, target_fd: int, size: int, position: int) -> int:
        self._count()
        return super().copy(source_fd, target_fd, size, position)

    def replace(self, source: str, target: str) -> None:
        self._count()
        super().replace(source, target)


class Killed(BaseException):
    """A kill: no code runs after it, not even code that cleans up."""


def refusal(kafka: KafkaFolder, target: Path, io: Io) -> BaseException | None:
    """The exception of an import with these system calls; None if it succeeds."""
    config = load_config(None, str(target), [], [])
    with KafkaDir.open(str(kafka.path), tell_logging) as source:
        plan = plan_of(source, read_metadata(source))
        try:
            trio.run(_take, config, Takeover(source, str(target), link=False, io=io), plan)
        except (StorageError, Killed) as error:
            return error
        except BaseExceptionGroup as group:
            if not group.subgroup(Killed):
                raise
            return group
    return None


def test_a_full_disk_leaves_nothing_behind(kafka: KafkaFolder, target: Path) -> None:
    kafka.write(*topic())
    kafka.log()
    writes = -1
    while (
        failed := refusal(kafka, target, Limited(writes := writes + 1, OSError(errno.ENOSPC, "no room")))
    ) is not None:
        assert isinstance(failed, StorageError)
        assert "\n" not in str(failed)
        assert not target.exists() or not list(target.iterdir()), (writes, failed)
    assert writes > 20
    assert served(target)[1] == VALUES


def test_after_a_kill_at_any_write_nothing_starts(
    kafka: KafkaFolder, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kafka.write(*topic())
    kafka.log()
    monkeypatch.setattr(Takeover, "_take_back", lambda self: None)
    target.mkdir()
    writes = -1
    while refusal(kafka, place := target / str(writes := writes + 1), Limited(writes, Killed())) is not None:
        if place.exists() and set(os.listdir(place)) - {"import.unfinished.tmp"}:
            with pytest.raises(StorageError, match="was cut off: delete the directory, and import again"):
                DataDir.open(place, node_id=1)
            with (
                KafkaDir.open(str(kafka.path), tell_logging) as source,
                pytest.raises(StorageError, match="was cut off"),
            ):
                Takeover(source, str(place), link=False).check()
    assert writes > 20
    assert served(place)[1] == VALUES


def test_a_linked_segment_is_mended_beside_kafkas(kafka: KafkaFolder, target: Path) -> None:
    kafka.write(*topic())
    segment = kafka.log() / f"{0:020}.log"
    damaged = segment.read_bytes()[:-1] + b"?"
    segment.write_bytes(damaged)
    assert run(kafka, target, "--link") == 0
    linked, active = target / "orders-0" / segment.name, target / "orders-0" / f"{5:020}.log"
    assert (linked.stat().st_nlink, active.stat().st_nlink) == (2, 1), "the active segment is copied"
    (target / ".kafka_cleanshutdown").unlink()
    (target / "recovery-point-offset-checkpoint").unlink()

    async def recovered() -> int:
        async with DataDir.open(target, node_id=1, tell=tell_logging) as directory:
            await directory.load()
            return directory.vnodes["orders", 0].log_end_offset

    assert trio.run(recovered) == len(VALUES)
    assert linked.read_bytes() != damaged
    assert segment.read_bytes() == damaged, "Kafka's file is as it was"


def test_serve_refuses_a_directory_of_kafkas(kafka: KafkaFolder, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--listen", "127.0.0.1:0", "--data-dir", str(kafka.path)]) == 1
    said = capsys.readouterr().err
    assert "barnabas import-kafka-logs" in said
    assert said.count("\n") == 1
