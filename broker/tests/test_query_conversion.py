"""`barnabas.query` set on an existing topic: an empty topic becomes a query topic, and no other does."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio

from barnabas.broker.jobs import queries
from barnabas.broker.tests.client import Client, batch_of
from barnabas.broker.tests.conftest import Running, Start
from barnabas.broker.tests.test_queries import BY_HAND, TOPIC, alter, configs_of, create, driver_of, offsets
from barnabas.storage.errors import StorageError
from barnabas.storage.io import Io
from barnabas.wire.aliases import BytesLike
from barnabas.wire.batch import iter_batches, iter_records
from barnabas.wire.errors import ErrorCode
from barnabas.wire.internal_topics import QUERIES_TOPIC
from barnabas.wire.messages import alter_configs
from barnabas.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from barnabas.wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from barnabas.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState

QUERY = "SELECT * FROM src"
EARLIEST, LATEST = -2, -1


async def delete(client: Client, name: str) -> None:
    answer = await client.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name=name)]))
    assert answer.responses[0].error_code == 0


async def make_source(client: Client) -> None:
    """Three partitions that end at 3, 0 and 2."""
    await client.create_topic("src", 3)
    await client.produce("src", batch_of(b"a", b"b", b"c"))
    await client.produce("src", batch_of(b"d", b"e"), partition=2)


async def assert_ordinary(running: Running, client: Client, name: str, ends: list[int]) -> None:
    """Check that the topic has no setting of a query, and that clients can write to it."""
    topic = running.node.metadata.topics[name]
    assert not [key for key in topic.configs if key.startswith("barnabas.query")]
    assert await offsets(client, name, len(topic.partitions), LATEST) == ends
    assert (await client.produce(name, batch_of(b"mine"))).base_offset == ends[0]


async def test_an_empty_topic_becomes_what_a_new_query_topic_would_be(start: Start) -> None:
    async with start(**BY_HAND) as running, driver_of(running) as driver, await running.client() as client:
        await make_source(client)
        await client.create_topic("out", 2, retention_ms="5000", barnabas_value_schema="old INT")
        topic_id = running.node.metadata.topics["out"].topic_id
        settings: dict[str, Any] = {
            "barnabas_query": QUERY,
            "barnabas_query_start": "latest",
            "barnabas_query_on_error": "skip",
        }
        assert (await alter(client, "out", **settings)).error_code == 0
        made = await create(client, "made", **settings, retention_ms="5000")
        assert made.error_code == 0
        found = await configs_of(client, "out")
        assert found == await configs_of(client, "made")
        assert msgspec.json.decode(found["barnabas.query.plan"] or "")["offsets"] == [3, 0, 2]
        assert found["barnabas.value.schema"] == "a INT"
        assert {"type": "changed"} in driver.messages
    for _ in range(2):  # it still is one after two restarts
        async with start(**BY_HAND) as running, driver_of(running) as driver, await running.client() as client:
            assert running.node.metadata.topics["out"].topic_id == topic_id
            assert await offsets(client, "out", 3, EARLIEST) == [3, 0, 2]
            refused = await client.produce("out", batch_of(b"x"))
            assert refused.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
            assert "read-only" in (refused.error_message or "")
            ends = await offsets(client, "out", 3, LATEST)
            assert (await driver.write("out", driver.covering(ends[2], ends[2] + 10, ends[2] + 4), 2)).error_code == 0
    async with start(**BY_HAND) as running, await running.client() as client:
        part = await client.fetch("out", 2, partition=2)
        assert [r.offset for _, data in iter_batches(part.records) for r in iter_records(data)] == [6, 16]


async def test_the_older_alter_makes_one_too_and_grows_with_the_source_like_any(start: Start) -> None:
    async with start(**BY_HAND) as running, driver_of(running), await running.client() as client:
        await client.create_topic("src")
        await client.create_topic("out", retention_ms="5000")
        request = alter_configs.AlterConfigsRequest(
            resources=[
                alter_configs.AlterConfigsResource(
                    TOPIC, "out", [alter_configs.AlterableConfig("barnabas.query", QUERY)]
                )
            ]
        )
        assert (await client.ask(request)).responses[0].error_code == 0
        assert (await configs_of(client, "out"))["barnabas.query"] == QUERY
        assert "retention.ms" not in running.node.metadata.topics["out"].configs
        assert (await alter(client, "out", barnabas_query="SELECT 1 FROM src")).error_code == 0
        grown = CreatePartitionsTopic(name="src", count=3, assignments=None)
        assert (await client.ask(CreatePartitionsRequest(topics=[grown]))).results[0].error_code == 0
        with trio.fail_after(60):
            while len(running.node.metadata.topics["out"].partitions) < 3:
                await trio.lowlevel.checkpoint()


async def test_a_query_over_a_pattern_keeps_the_partitions_and_does_not_read_itself(start: Start) -> None:
    async with start(**BY_HAND) as running, driver_of(running), await running.client() as client:
        await make_source(client)
        await client.create_topic("src-all", 2)
        settings: dict[str, Any] = {"barnabas_query": "SELECT * FROM topics('src.*')", "barnabas_query_events": "true"}
        assert (await alter(client, "src-all", **settings)).error_code == 0
        plan = msgspec.json.decode((await configs_of(client, "src-all"))["barnabas.query.plan"] or "")
        assert plan["starts"] == {"src": [0, 0, 0]}
        assert await offsets(client, "src-all", 2, LATEST) == [0, 0]
        assert len(running.node.metadata.topics["src-all"].partitions) == 2


async def test_what_is_not_a_new_topic_is_refused_and_stays_as_it_is(start: Start) -> None:
    async with start(**BY_HAND) as running, driver_of(running), await running.client() as client:
        await make_source(client)
        for name in ("full", "emptied", "read", "plant-a", "free"):
            await client.create_topic(name)
        await client.create_topic("wide", 4)
        for name in ("full", "emptied"):
            await client.produce(name, batch_of(b"mine"))
        gone = DeleteRecordsTopic(name="emptied", partitions=[DeleteRecordsPartition(0, -1)])
        await client.ask(DeleteRecordsRequest(topics=[gone]))
        await create(client, "reader", barnabas_query="SELECT * FROM read")
        await create(client, "plants", barnabas_query="SELECT * FROM topics('plant-.*')")
        await create(client, "reader.dead-letter", barnabas_query_dead_letter_of="reader")
        for name, query, code, told in [
            ("full", QUERY, ErrorCode.INVALID_CONFIG, "full has held records"),
            ("emptied", QUERY, ErrorCode.INVALID_CONFIG, "use a new topic"),
            ("read", QUERY, ErrorCode.INVALID_CONFIG, "is read by the query topic reader"),
            ("read", "SELECT * FROM reader", ErrorCode.INVALID_CONFIG, "is read by the query topic reader"),
            ("plant-a", QUERY, ErrorCode.INVALID_CONFIG, "is read by the query topic plants"),
            ("free", "SELECT * FROM free", ErrorCode.INVALID_CONFIG, "cannot read itself"),
            ("wide", QUERY, ErrorCode.INVALID_PARTITIONS, "Delete wide, and make it again with 3"),
            (QUERIES_TOPIC, QUERY, ErrorCode.INVALID_CONFIG, "is written only by the broker"),
            ("reader.dead-letter", QUERY, ErrorCode.INVALID_CONFIG, "is written only by the broker"),
        ]:
            before = dict(running.node.metadata.topics[name].configs)
            answer = await alter(client, name, barnabas_query=query)
            assert (answer.error_code, told in answer.error_message) == (code, True), answer
            assert running.node.metadata.topics[name].configs == before
        for settings in (
            {"barnabas_query": QUERY, "barnabas_query_plan": "{}"},
            {"barnabas_query": QUERY, "barnabas_query_start": "soon"},
            {"barnabas_query": QUERY, "barnabas_query_events": "true"},  # no pattern
            {"barnabas_query": QUERY, "barnabas_query_dead_letter_of": "reader"},
            {"barnabas_query_start": "latest"},
            {"barnabas_query_events": "true"},
        ):
            assert (await alter(client, "free", **settings)).error_code == ErrorCode.INVALID_CONFIG, settings  # type: ignore[arg-type]
        for name, ends in {"full": [1], "emptied": [1], "read": [0], "free": [0], "wide": [0] * 4}.items():
            await assert_ordinary(running, client, name, ends)


async def test_validate_only_says_what_would_be_and_changes_nothing(start: Start) -> None:
    async with start(**BY_HAND) as running, driver_of(running) as driver, await running.client() as client:
        await make_source(client)
        await client.create_topic("out")
        settings: dict[str, Any] = {"barnabas_query": QUERY, "barnabas_query_start": "latest"}
        assert (await alter(client, "out", validate_only=True, **settings)).error_code == 0
        driver.error = "there is no column b"
        assert (await alter(client, "out", validate_only=True, **settings)).error_message == "there is no column b"
        await assert_ordinary(running, client, "out", [0])
        assert (await alter(client, "out", validate_only=True, **settings)).error_code == ErrorCode.INVALID_CONFIG


async def test_without_a_plan_the_topic_stays_ordinary(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queries, "_MIN_WAIT_SECONDS", 0.0)
    monkeypatch.setattr("barnabas.broker.settings.resource_configs._QUERY_CHECK_MS", 1)
    async with start(**BY_HAND) as running, await running.client() as client:
        await make_source(client)
        await client.create_topic("out")
        answer = await alter(client, "out", barnabas_query=QUERY)
        assert (answer.error_code, "barnabas streams" in answer.error_message) == (ErrorCode.REQUEST_TIMED_OUT, True)
        await assert_ordinary(running, client, "out", [0])


async def test_a_record_that_comes_while_the_driver_thinks_is_kept_and_the_change_refused(start: Start) -> None:
    async with start(**BY_HAND) as running, driver_of(running) as driver, await running.client() as client:
        await make_source(client)
        await client.create_topic("out")
        producer = await running.client()
        driver.meanwhile = lambda: producer.produce("out", batch_of(b"first"))
        answer = await alter(client, "out", barnabas_query=QUERY)
        assert (answer.error_code, "has held records" in answer.error_message) == (ErrorCode.INVALID_CONFIG, True)
        await assert_ordinary(running, client, "out", [1])
        part = await client.fetch("out")
        assert [r.value for _, data in iter_batches(part.records) for r in iter_records(data)] == [b"first", b"mine"]


async def test_a_topic_that_changes_while_the_driver_thinks_is_left_alone(start: Start) -> None:
    async with start(**BY_HAND) as running, driver_of(running) as driver, await running.client() as client:
        await make_source(client)
        other = await running.client()

        async def make_again() -> None:
            driver.meanwhile = None
            await delete(other, "out")
            await other.create_topic("out")

        await client.create_topic("out")
        driver.meanwhile = make_again
        answer = await alter(client, "out", barnabas_query=QUERY)
        assert (answer.error_code, "try again" in answer.error_message) == (ErrorCode.INVALID_REQUEST, True)
        await assert_ordinary(running, client, "out", [0])
        await create(client, "made", barnabas_query=QUERY)
        await delete(other, "out")

        async def become_ordinary() -> None:
            driver.meanwhile = None
            await delete(other, "made")
            await other.create_topic("made")

        driver.meanwhile = become_ordinary
        answer = await alter(client, "made", barnabas_query="SELECT 1 FROM src")
        assert answer.error_code == ErrorCode.INVALID_REQUEST
        await assert_ordinary(running, client, "made", [0])


async def alter_both(running: Running, *changes: tuple[str, str]) -> list[int]:
    """Two changes of a query at the same time. Returns their error codes."""
    codes = []

    async def ask(name: str, query: str) -> None:
        async with await running.client() as client:
            codes.append((await alter(client, name, barnabas_query=query)).error_code)

    async with trio.open_nursery() as nursery:
        for change in changes:
            nursery.start_soon(ask, *change)
    return sorted(codes)


async def test_of_two_changes_at_one_time_the_second_is_refused(start: Start) -> None:
    async with start(**BY_HAND) as running, driver_of(running), await running.client() as client:
        await make_source(client)
        for name in ("a", "b", "c"):
            await client.create_topic(name)
        assert await alter_both(running, ("a", "SELECT * FROM b"), ("b", "SELECT * FROM a")) == [
            0,
            ErrorCode.INVALID_CONFIG,
        ]
        assert await alter_both(running, ("c", "SELECT 1 FROM src"), ("c", "SELECT 2 FROM src")) == [
            0,
            ErrorCode.INVALID_REQUEST,
        ]


async def test_from_the_change_on_no_client_writes_the_topic(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    async with start(**BY_HAND) as running, driver_of(running), await running.client() as client:
        await make_source(client)
        for name in ("never", "unknown", "out"):
            await client.create_topic(name)
        producer = await running.client()
        node = running.node
        write, flushed = node.metadata.write, node.flusher.flushed

        def fail(*_: object) -> Any:
            raise StorageError("no space left")

        monkeypatch.setattr(node.metadata, "write", fail)
        assert (await alter(client, "never", barnabas_query=QUERY)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        await assert_ordinary(running, client, "never", [0])
        monkeypatch.setattr(node.metadata, "write", write)

        async def produce_first(*args: Any) -> None:
            assert "out" in node.queries.closed
            assert (await producer.produce("out", batch_of(b"x"))).error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
            await flushed(*args)

        monkeypatch.setattr(node.flusher, "flushed", produce_first)
        assert (await alter(client, "out", barnabas_query=QUERY)).error_code == 0
        assert await offsets(client, "out", 3, LATEST) == [0, 0, 0]

        # The change may be on disk: an ordinary record accepted now could be among the results after the next start.
        monkeypatch.setattr(node.flusher, "flushed", fail)
        assert (await alter(client, "unknown", barnabas_query=QUERY)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert (await client.produce("unknown", batch_of(b"x"))).error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    async with start(**BY_HAND) as running, await running.client() as client:
        assert await offsets(client, "unknown", 3, LATEST) == [0, 0, 0]
        assert (await configs_of(client, "unknown"))["barnabas.query"] == QUERY
        assert (await client.produce("never", batch_of(b"x"))).error_code == 0


async def test_a_consumer_that_waits_at_the_old_start_is_told_that_it_has_moved(start: Start) -> None:
    async with start(**BY_HAND) as running, driver_of(running), await running.client() as client:
        await make_source(client)
        await client.create_topic("out")
        parts: list[Any] = []

        async def wait() -> None:
            async with await running.client() as consumer:
                parts.append(await consumer.fetch("out", max_wait_ms=20_000))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            with trio.fail_after(60):
                while not running.node.vnodes["out", 0].on_high_watermark.callables:
                    await trio.lowlevel.checkpoint()
            moved = await alter(client, "out", barnabas_query=QUERY, barnabas_query_start="latest")
            assert moved.error_code == 0
        assert parts[0].error_code == ErrorCode.OFFSET_OUT_OF_RANGE


class Stuck(Io):
    """A disk on which the files of one partition cannot be removed."""

    def unlink(self, path: str) -> None:
        if os.path.basename(os.path.dirname(path)) == "out-0":
            raise OSError(errno.EIO, "Input/output error")
        super().unlink(path)


async def test_a_log_that_cannot_be_moved_is_offline_until_the_next_start(start: Start) -> None:
    async with start(**BY_HAND, io_calls=Stuck()) as running, driver_of(running), await running.client() as client:
        await make_source(client)
        await client.create_topic("out", 3)
        settings: dict[str, Any] = {"barnabas_query": QUERY, "barnabas_query_start": "latest"}
        assert (await alter(client, "out", **settings)).error_code == 0
        assert "partition.not_made" in running.log
        assert (await client.fetch("out")).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert (await client.fetch("out", 2, 2)).error_code == 0
    async with start(**BY_HAND) as running, await running.client() as client:
        assert await offsets(client, "out", 3, EARLIEST) == [3, 0, 2]
        assert await offsets(client, "out", 3, LATEST) == [3, 0, 2]


class Moments(Io):
    """While `taking`, copies the directory before each change on disk, as a kill would leave it."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.taken: list[Path] = []
        self.taking = False

    def take(self) -> None:
        if self.taking:
            self.taken.append(self.place.with_name(f"moment-{len(self.taken)}"))
            shutil.copytree(self.place, self.taken[-1])

    def open(self, path: str, flags: int, mode: int = 0o644) -> int:
        if flags & os.O_CREAT:
            self.take()
        return super().open(path, flags, mode)

    def pwritev(self, fd: int, parts: Sequence[BytesLike], position: int) -> int:
        self.take()
        return super().pwritev(fd, parts, position)

    def replace(self, source: str, target: str) -> None:
        self.take()
        super().replace(source, target)

    def unlink(self, path: str) -> None:
        self.take()
        super().unlink(path)

    def mkdir(self, path: str) -> None:
        self.take()
        super().mkdir(path)


async def test_a_kill_at_any_moment_leaves_an_ordinary_topic_or_a_query_topic(start: Start, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"barnabas_query": QUERY, "barnabas_query_start": "latest"}
    io = Moments(tmp_path / "data")
    async with start(**BY_HAND, io_calls=io) as running, driver_of(running), await running.client() as client:
        await make_source(client)
        await client.create_topic("out", 2)
        topic_id = running.node.metadata.topics["out"].topic_id
        io.taking = True
        assert (await alter(client, "out", **settings)).error_code == 0
        io.take()
        io.taking = False
    found = []
    for place in io.taken:
        async with start(**BY_HAND, log_dir=str(place)) as running, await running.client() as client:
            topic = running.node.metadata.topics["out"]
            assert topic.topic_id == topic_id
            found.append("barnabas.query" in topic.configs)
            if not found[-1]:
                assert await offsets(client, "out", 2, EARLIEST) == [0, 0]
                assert len(topic.partitions) == 2
                async with driver_of(running):
                    assert (await alter(client, "out", **settings)).error_code == 0
            assert await offsets(client, "out", 3, EARLIEST) == [3, 0, 2]
            assert await offsets(client, "out", 3, LATEST) == [3, 0, 2]
            assert (await client.produce("out", batch_of(b"x"))).error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
            async with driver_of(running) as driver:
                assert (await driver.write("out", driver.covering(3, 9, 5))).base_offset == 3
    assert found == sorted(found)  # ordinary until the metadata log is written, and a query topic from then on
    assert (found[0], found[-1]) == (False, True)
    assert found.count(True) > 10
