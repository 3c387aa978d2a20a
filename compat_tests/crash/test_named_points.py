"""The broker dies inside one named step. The next start finds it done or not done, and all acknowledged records."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path

import pytest
import trio

from barnabas.broker.tests.client import Client, Closed, batch_of, connect
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from barnabas.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from barnabas.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from compat_tests.broker_process import Barnabas
from compat_tests.crash.segments import records_of, segment_files

pytestmark = pytest.mark.one_node("a process that dies at a point of its own is one node")

SETTINGS = {"log.segment.bytes": "2000", "log.index.interval.bytes": "300"}
# (operation, word in its path, which call, when)
SLOW = pytest.mark.slow
POINTS = [
    pytest.param("pwritev", "kept-0/", 3, "torn", id="append"),
    pytest.param("fdatasync", "kept-0/", 2, "before", id="fsync", marks=SLOW),
    pytest.param("pwritev", ".index", 1, "torn", id="index-write"),
    pytest.param("pwritev", ".timeindex", 2, "before", id="time-index-write", marks=SLOW),
    pytest.param("pwritev", ".snapshot", 1, "torn", id="producer-snapshot-write"),
    pytest.param("replace", ".snapshot", 1, "before", id="producer-snapshot-rename", marks=SLOW),
    pytest.param("open", "kept-0/000", 4, "after", id="roll-index-made", marks=SLOW),
    pytest.param("open", "kept-0/000", 6, "after", id="roll-log-made"),
    pytest.param("pwritev", "__cluster_metadata", 1, "torn", id="topic-create-log", marks=SLOW),
    pytest.param("mkdir", "new-1", 1, "before", id="topic-create-half-the-folders"),
    pytest.param("mkdir", "new-1", 1, "after", id="topic-create-empty-folder", marks=SLOW),
    pytest.param("replace", "new-2/partition.metadata", 1, "before", id="topic-create-without-id", marks=SLOW),
    pytest.param("fdatasync", "__cluster_metadata", 2, "after", id="topic-delete-log", marks=SLOW),
    pytest.param("replace", "-delete", 2, "before", id="topic-delete-half-the-folders"),
    pytest.param("rmtree", "-delete", 1, "before", id="topic-delete-files", marks=SLOW),
    pytest.param("pwritev", "recovery-point-offset-checkpoint", 1, "torn", id="checkpoint-write"),
    pytest.param("replace", "log-start-offset-checkpoint", 1, "before", id="checkpoint-rename", marks=SLOW),
    pytest.param("replace", ".deleted", 1, "after", id="delete-records"),
]


class Dying(Barnabas):
    """A broker that dies at one of `POINTS`."""

    point: tuple[str, str, int, str] | None = None

    def command(self) -> list[str]:
        if self.point is None:
            return super().command()
        pairs = [f"{key}={value}" for key, value in self.overrides.items()]
        point = ["-m", "compat_tests.crash.dying_broker", *map(str, self.point), "--"]
        return [sys.executable, *point, str(self.data_dir), str(self.port), *pairs]


class Promises:
    """What the broker has acknowledged."""

    def __init__(self) -> None:
        self.kept: list[bytes] = []
        self.created = self.deleted = False
        self.start = 0


async def before(client: Client, promises: Promises) -> None:
    await client.create_topic("kept")
    await client.create_topic("old", 3)
    for number in range(8):
        await keep(client, promises, number)


async def keep(client: Client, promises: Promises, number: int) -> None:
    """Write one record of an idempotent producer; four of them fill a segment."""
    value = b"%d:" % number + b"." * 500
    data = batch_of(value, producer_id=900, producer_epoch=0, base_sequence=number)
    answer = await client.produce("kept", data)
    assert (answer.error_code, answer.base_offset) == (0, number)
    promises.kept[number:] = [value]


async def live(port: int, promises: Promises) -> None:
    """Do all operations that have a named point, until the connection breaks."""
    with contextlib.suppress(Closed, OSError, trio.BrokenResourceError):
        async with await connect(port) as client:
            await client.create_topic("new", 3)
            promises.created = True
            answer = await client.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name="old")]))
            promises.deleted = answer.responses[0].error_code == 0
            for number in range(8, 20):
                await keep(client, promises, number)
            parts = [DeleteRecordsPartition(partition_index=0, offset=9)]
            done = await client.ask(DeleteRecordsRequest(topics=[DeleteRecordsTopic(name="kept", partitions=parts)]))
            assert done.topics[0].partitions[0].error_code == 0
            promises.start = 9


async def after(port: int, promises: Promises) -> None:
    async with await connect(port) as client:
        count = len(promises.kept)
        # The producer repeats the unanswered batch, and goes on.
        value = b"%d:" % count + b"." * 500
        data = batch_of(value, producer_id=900, producer_epoch=0, base_sequence=count)
        answer = await client.produce("kept", data)
        assert (answer.error_code, answer.base_offset) == (0, count)
        for name, promised in (("new", promises.created), ("old", not promises.deleted)):
            asked = [MetadataRequestTopic(name=name)]
            (topic,) = (await client.ask(MetadataRequest(topics=asked, allow_auto_topic_creation=False), 9)).topics
            if name == "new" and promised:
                assert topic.error_code == 0
            if name == "old" and not promised:
                assert topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if topic.error_code == 0:
                assert len(topic.partitions) == 3
            else:
                assert topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                await client.create_topic(name, 3)
            for partition in range(3):
                written = await client.produce(name, batch_of(b"x"), partition)
                assert (written.error_code, written.base_offset) == (0, 0), (name, partition)


@pytest.mark.parametrize(("operation", "word", "number", "when"), POINTS)
def test_death_at_a_named_point(tmp_path: Path, operation: str, word: str, number: int, when: str) -> None:
    server = Dying(tmp_path, SETTINGS)
    promises = Promises()
    server.start()

    async def prepare() -> None:
        async with await connect(server.port) as client:
            await before(client, promises)

    trio.run(prepare)
    assert server.stop() == 0
    server.point = (operation, word, number, when)
    server.start()
    trio.run(live, server.port, promises)
    assert server.process
    assert server.process.wait(120) == -9, "the point was not reached"
    server.point = None
    server.start()
    trio.run(after, server.port, promises)
    assert server.stop() == 0
    assert not server.errors()
    if segment_files(server.data_dir, "kept", 0)[0].stem == "0" * 20:
        records = records_of(server.data_dir, "kept", 0)
        assert [r.value for r in records[: len(promises.kept)]] == promises.kept
        assert len(records) == len(promises.kept) + 1
