"""Query topics from the broker's side. The tests act as the streams driver, so they need no Spark."""

from __future__ import annotations

import sys
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio

from barnabas.broker.jobs import queries
from barnabas.broker.jobs.queries import Queries
from barnabas.broker.tests.client import NOW, Client, batch_of
from barnabas.broker.tests.conftest import Running, Start
from barnabas.wire.batch import Record, build_batch, iter_batches, iter_records
from barnabas.wire.errors import ErrorCode
from barnabas.wire.internal_topics import QUERIES_TOPIC
from barnabas.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from barnabas.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from barnabas.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from barnabas.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from barnabas.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from barnabas.wire.messages.init_producer_id import InitProducerIdRequest
from barnabas.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from barnabas.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.wire.queries.writer import SECRET_FILE, WRITER_ID

NEEDS_SPARK = pytest.mark.skipif(sys.implementation.name == "pypy", reason="there is no Spark for PyPy")
BY_HAND = {"barnabas_streams_driver": "none"}
TOPIC, SET, DELETE = 2, 0, 1


class FakeDriver:
    """Answers the broker's questions: each query reads the topic, or topics('PATTERN'), named by its last word.

    If a test sets `meanwhile`, it is called before each answer.
    """

    def __init__(self, running: Running) -> None:
        self.node = running.node
        self.running = running
        self.writer_id = (Path(running.node.config.data_dir) / SECRET_FILE).read_text()
        self.producer_id = -1
        self.messages: list[dict[str, Any]] = []
        self.error: str | None = None
        self.no_spark: str | None = None
        self.meanwhile: Callable[[], Awaitable[Any]] | None = None
        self.asking = trio.Lock()  # the answer to the last message may not have come yet when a test writes

    async def begin(self) -> None:
        self.client = await self.running.client()
        answer = await self.client.ask(InitProducerIdRequest(transactional_id=self.writer_id))
        assert answer.error_code == 0
        self.producer_id = answer.producer_id

    async def serve(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        await self.begin()
        reader = await self.running.client()
        offset = 0
        task_status.started()
        while True:
            part = await reader.fetch(QUERIES_TOPIC, offset, max_wait_ms=500, min_bytes=1)
            for header, data in iter_batches(part.records or b""):
                for record in iter_records(data):
                    await self.hear(msgspec.json.decode(record.value or b""))
                offset = header.last_offset + 1

    async def hear(self, message: dict[str, Any]) -> None:
        self.messages.append(message)
        if message["type"] != "check":
            return
        source = message["query"].split()[-1]
        if source.startswith("topics('"):
            reads = {"pattern": source[len("topics('") : -len("')")]}
        else:
            reads = {"source": source, "source_id": str(uuid.UUID(bytes=self.node.metadata.topics[source].topic_id))}
        if self.meanwhile is not None:
            await self.meanwhile()
        answer = {
            "type": "checked",
            "id": message["id"],
            **reads,
            "tried": [reads["source"]] if "source" in reads else [],
            "format": "json",
            "schema": "a INT",
            "output_format": "json",
            "output_schema": "a INT",
        }
        said = {"error": self.error, "no_spark": self.no_spark}
        await self.say({**answer, **{key: value for key, value in said.items() if value}})

    async def say(self, message: dict[str, Any]) -> None:
        batch = build_batch(
            [Record(None, msgspec.json.encode(message), NOW)],
            producer_id=self.producer_id,
            producer_epoch=0,
            base_sequence=0,
        )
        assert (await self.write(QUERIES_TOPIC, batch)).error_code == 0

    async def write(self, topic: str, data: bytes, partition: int = 0) -> Any:
        request = ProduceRequest(
            transactional_id=self.writer_id,
            acks=-1,
            topic_data=[TopicProduceData(name=topic, partition_data=[PartitionProduceData(partition, data)])],
        )
        async with self.asking:
            return (await self.client.ask(request, 12)).responses[0].partition_responses[0]

    def covering(self, base: int, upto: int, *offsets: int) -> bytes:
        records = [Record(None, b"%d" % offset, NOW, offset=offset) for offset in offsets]
        return build_batch(
            records, base_offset=base, producer_id=self.producer_id, producer_epoch=0, last_offset_delta=upto - 1 - base
        )


@asynccontextmanager
async def driver_of(running: Running) -> AsyncIterator[FakeDriver]:
    driver = FakeDriver(running)
    async with trio.open_nursery() as nursery:
        await nursery.start(driver.serve)
        yield driver
        nursery.cancel_scope.cancel()


async def create(
    client: Client, name: str, partitions: int = -1, *, validate_only: bool = False, **configs: str
) -> Any:
    given = [CreatableTopicConfig(key.replace("_", "."), value) for key, value in configs.items()]
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=-1, configs=given)
    request = CreateTopicsRequest(topics=[topic], timeout_ms=1000, validate_only=validate_only)
    return (await client.ask(request)).topics[0]


async def configs_of(client: Client, name: str) -> dict[str, str | None]:
    asked = DescribeConfigsRequest(resources=[DescribeConfigsResource(TOPIC, name, None)])
    return {entry.name: entry.value for entry in (await client.ask(asked)).results[0].configs}


async def alter(client: Client, name: str, *, validate_only: bool = False, **configs: str | None) -> Any:
    changes = [
        AlterableConfig(key.replace("_", "."), DELETE if value is None else SET, value)
        for key, value in configs.items()
    ]
    request = IncrementalAlterConfigsRequest(
        resources=[AlterConfigsResource(TOPIC, name, changes)], validate_only=validate_only
    )
    return (await client.ask(request)).responses[0]


async def offsets(client: Client, name: str, partitions: int, special: int) -> list[int]:
    asked = [ListOffsetsPartition(index, timestamp=special) for index in range(partitions)]
    answer = await client.ask(ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name, asked)]))
    return [part.offset for part in answer.topics[0].partitions]


async def test_a_query_topic_has_the_partitions_and_offsets_of_its_source(start: Start) -> None:
    async with start(**BY_HAND) as running, driver_of(running) as driver, await running.client() as client:
        await client.create_topic("src", 2)
        await client.produce("src", batch_of(b"a", b"b", b"c"), partition=1)
        made = await create(client, "all", barnabas_query="SELECT * FROM src")
        assert (made.error_code, made.num_partitions) == (0, 2)
        assert (
            await create(client, "new", barnabas_query="SELECT * FROM src", barnabas_query_start="latest")
        ).error_code == 0
        await create(client, "since", barnabas_query="SELECT * FROM src", barnabas_query_start=str(NOW))
        assert await offsets(client, "all", 2, -2) == [0, 0]
        assert await offsets(client, "new", 2, -2) == await offsets(client, "new", 2, -1) == [0, 3]
        assert await offsets(client, "since", 2, -2) == [0, 0]
        found = await configs_of(client, "new")
        assert found["barnabas.query"] == "SELECT * FROM src"
        assert (found["barnabas.value.format"], found["barnabas.value.schema"]) == ("json", "a INT")
        plan = msgspec.json.decode(found["barnabas.query.plan"] or "")
        assert (plan["source"], plan["offsets"], plan["schema"]) == ("src", [0, 3], "a INT")
        assert {"type": "changed"} in driver.messages


async def test_only_the_driver_writes_and_only_where_the_log_ends(start: Start) -> None:
    async with start(**BY_HAND) as running, driver_of(running) as driver, await running.client() as client:
        await client.create_topic("src")
        await create(client, "out", barnabas_query="SELECT * FROM src")
        refused = await client.produce("out", batch_of(b"x"))
        assert refused.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
        assert "read-only" in (refused.error_message or "")
        assert (await client.produce(QUERIES_TOPIC, batch_of(b"x"))).error_code != 0
        assert (await driver.write("src", batch_of(b"x"))).error_code == (
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        )
        assert (await driver.write("out", driver.covering(0, 10, 3, 7))).base_offset == 0
        assert (await driver.write("out", driver.covering(0, 10, 3, 7))).error_code == (
            ErrorCode.DUPLICATE_SEQUENCE_NUMBER
        )
        assert (await driver.write("out", driver.covering(11, 12))).error_code == (
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        )
        assert (await driver.write("out", driver.covering(10, 50))).error_code == 0
        part = await client.fetch("out", 5)
        found = [r.offset for _, data in iter_batches(part.records) for r in iter_records(data)]
        assert (found, part.high_watermark) == ([3, 7], 50)


async def test_a_new_driver_fences_the_old_one_and_a_new_broker_knows_none(start: Start) -> None:
    async with start(**BY_HAND) as running, driver_of(running) as old, await running.client() as client:
        await client.create_topic("src")
        await create(client, "out", barnabas_query="SELECT * FROM src")
        new = FakeDriver(running)
        await new.begin()
        assert (await old.write("out", old.covering(0, 10))).error_code == ErrorCode.INVALID_PRODUCER_EPOCH
        assert (await new.write("out", new.covering(0, 10))).error_code == 0
        kept = new.producer_id
    async with start(**BY_HAND) as running:
        again = FakeDriver(running)
        again.client = await running.client()
        again.producer_id = kept
        assert (await again.write("out", again.covering(10, 20))).error_code == ErrorCode.UNKNOWN_PRODUCER_ID
        await again.begin()
        assert again.producer_id != kept
        assert (await again.write("out", again.covering(10, 20))).error_code == 0


async def test_a_query_for_which_there_is_no_spark_is_told_so_and_is_no_wrong_query(start: Start) -> None:
    async with start(**BY_HAND) as running, driver_of(running) as driver, await running.client() as client:
        await client.create_topic("src", 3)
        driver.no_spark = "Spark needs Java 17 or newer, and there is none on the PATH"
        answer = await create(client, "out", barnabas_query="SELECT a + 1 FROM src")
        assert (answer.error_code, answer.error_message) == (ErrorCode.INVALID_REQUEST, driver.no_spark)
        assert "out" not in running.node.metadata.topics


async def test_what_the_driver_finds_wrong_is_told_and_nothing_is_made(start: Start) -> None:
    async with start(**BY_HAND) as running, driver_of(running) as driver, await running.client() as client:
        await client.create_topic("src", 3)
        driver.error = "there is no column b"
        answer = await create(client, "out", barnabas_query="SELECT b FROM src")
        assert (answer.error_code, answer.error_message) == (ErrorCode.INVALID_CONFIG, "there is no column b")
        driver.error = None
        assert (await create(client, "out", 2, barnabas_query="SELECT * FROM src")).error_code == (
            ErrorCode.INVALID_PARTITIONS
        )
        for configs in (
            {"barnabas_query_start": "soon", "barnabas_query": "SELECT * FROM src"},
            {"barnabas_query_plan": "{}", "barnabas_query": "SELECT * FROM src"},
            {"barnabas_query_start": "latest"},
            {"barnabas_query_on_error": "skip"},
            {"barnabas_query_events": "true"},
            {"barnabas_query_events": "true", "barnabas_query": "SELECT * FROM src"},  # no pattern
            {"barnabas_query_dead_letter_of": "src"},
        ):
            refused = await create(client, "out", **configs)  # type: ignore[arg-type]
            assert refused.error_code == ErrorCode.INVALID_CONFIG, configs
        checked = await create(client, "out", validate_only=True, barnabas_query="SELECT * FROM src")
        assert (checked.error_code, checked.num_partitions) == (0, 3)
        assert "out" not in running.node.metadata.topics


async def test_without_a_driver_the_client_is_told_how_to_start_one(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queries, "_MIN_WAIT_SECONDS", 0.05)
    async with start(**BY_HAND) as running, await running.client() as client:
        await client.create_topic("src")
        topic = CreatableTopic(
            name="out",
            num_partitions=-1,
            replication_factor=-1,
            configs=[CreatableTopicConfig("barnabas.query", "SELECT * FROM src")],
        )
        answer = (await client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=1))).topics[0]
        assert answer.error_code == ErrorCode.REQUEST_TIMED_OUT
        assert "barnabas streams" in (answer.error_message or "")


@NEEDS_SPARK
async def test_a_driver_that_ends_at_once_is_told_of_by_its_last_words(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = [sys.executable, "-c", "import sys; print('first', file=sys.stderr); sys.exit('it needs pyarrow')"]
    monkeypatch.setattr("barnabas.broker.jobs.driver_process.DriverProcess._command", lambda self: command)
    async with start() as running, await running.client() as client:
        await client.create_topic("src")
        answer = await create(client, "out", barnabas_query="SELECT * FROM src")
        assert answer.error_code == ErrorCode.INVALID_REQUEST
        assert "ended with status 1: it needs pyarrow (" in (answer.error_message or "")
        assert "out" not in running.node.metadata.topics


async def test_a_question_waits_for_a_driver_that_comes_up_later(start: Start) -> None:
    async with start(**BY_HAND) as running, await running.client() as client, trio.open_nursery() as nursery:
        await client.create_topic("src")
        answers: list[Any] = []

        async def ask() -> None:
            answers.append(await create(client, "out", barnabas_query="SELECT * FROM src"))
            nursery.cancel_scope.cancel()

        nursery.start_soon(ask)
        with trio.fail_after(60):
            while not running.node.queries._pending:
                await trio.lowlevel.checkpoint()
        driver = FakeDriver(running)
        await driver.begin()  # the broker repeats its question, because the log was not read before
        nursery.start_soon(driver.serve)
        await trio.sleep_forever()
    assert answers[0].error_code == 0


async def test_what_a_query_topic_is_cannot_be_changed_but_its_query_can(start: Start) -> None:
    async with start(**BY_HAND) as running, driver_of(running) as driver, await running.client() as client:
        await client.create_topic("src")
        await client.create_topic("other")
        await create(client, "out", barnabas_query="SELECT * FROM src")
        for name, configs in [
            ("out", {"barnabas_query_plan": "{}"}),
            ("out", {"barnabas_query_start": "latest"}),
            ("out", {"barnabas_query": None}),
            ("out", {"barnabas_query": "SELECT * FROM other"}),
            ("src", {"barnabas_query": "SELECT * FROM other"}),
            ("src", {"barnabas_query_on_error": "fail"}),
            ("out", {"barnabas_query_events": "true"}),
        ]:
            assert (await alter(client, name, **configs)).error_code == ErrorCode.INVALID_CONFIG, configs  # type: ignore[arg-type]
        assert (await driver.write("out", driver.covering(0, 10))).error_code == 0
        plan = (await configs_of(client, "out"))["barnabas.query.plan"]
        assert (await alter(client, "out", barnabas_query="SELECT 1 FROM src")).error_code == 0
        found = await configs_of(client, "out")
        assert found["barnabas.query"] == "SELECT 1 FROM src"
        assert found["barnabas.query.plan"] == plan
        assert (await alter(client, "out", barnabas_query_on_error="fail", retention_ms="1000")).error_code == 0
        assert (await offsets(client, "out", 1, -1)) == [10]


async def test_a_change_of_a_query_is_answered_when_the_driver_can_hear_of_it(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So what the client produces next is for the new query, however slow the disk is."""
    change_applied = Queries.change_applied

    def without_a_flush(queries: Queries) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(queries._flusher, "request", lambda _: None)
            change_applied(queries)

    async with start(**BY_HAND) as running, driver_of(running), await running.client() as client:
        await client.create_topic("src")
        await create(client, "out", barnabas_query="SELECT * FROM src")
        log = running.node.vnodes[QUERIES_TOPIC, 0]
        monkeypatch.setattr(Queries, "change_applied", without_a_flush)
        before = log.log_end_offset
        assert (await alter(client, "out", barnabas_query="SELECT 1 FROM src")).error_code == 0
        assert log.high_watermark == log.log_end_offset > before


async def test_a_query_topic_grows_with_its_source_only(start: Start) -> None:
    async with start(**BY_HAND) as running, driver_of(running), await running.client() as client:
        await client.create_topic("src", 1)
        await create(client, "out", barnabas_query="SELECT * FROM src")

        async def grow(name: str) -> int:
            topic = CreatePartitionsTopic(name=name, count=3, assignments=None)
            code: int = (await client.ask(CreatePartitionsRequest(topics=[topic]))).results[0].error_code
            return code

        assert await grow("out") == ErrorCode.INVALID_PARTITIONS
        assert await grow("src") == 0
        with trio.fail_after(60):
            while len(running.node.metadata.topics["out"].partitions) < 3:
                await trio.lowlevel.checkpoint()
        assert await offsets(client, "out", 3, -1) == [0, 0, 0]


async def test_dead_letters_begin_where_the_query_is_and_go_with_it(start: Start) -> None:
    async with start(**BY_HAND) as running, driver_of(running) as driver, await running.client() as client:
        await client.create_topic("src")
        await create(client, "out", barnabas_query="SELECT * FROM src")
        assert (await driver.write("out", driver.covering(0, 10, 3))).error_code == 0
        letters = "out.dead-letter"
        assert (await create(client, "x", barnabas_query_dead_letter_of="out")).error_code == ErrorCode.INVALID_CONFIG
        assert (await create(client, letters, barnabas_query_dead_letter_of="out")).error_code == 0
        assert await offsets(client, letters, 1, -2) == [10]
        assert (await client.produce(letters, batch_of(b"x"))).error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
        assert (await driver.write(letters, driver.covering(10, 16, 15))).error_code == 0
        gone = await client.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name="out")]))
        assert gone.responses[0].error_code == 0
        assert letters not in running.node.metadata.topics
        assert (await client.produce("out", batch_of(b"x"))).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_creation_that_was_cut_short_is_finished_with_its_first_offset(start: Start) -> None:
    async with start(**BY_HAND) as running, driver_of(running), await running.client() as client:
        await client.create_topic("src")
        await client.produce("src", batch_of(b"a", b"b"))
        await create(client, "out", barnabas_query="SELECT * FROM src", barnabas_query_start="latest")
        folder = running.node.data_dir.vnodes["out", 0].directory
        data_dir = running.node.data_dir
    for name in data_dir.io.listdir(folder):  # the folder exists, its first segment does not
        if not name.startswith("partition"):
            data_dir.io.unlink(f"{folder}/{name}")
    async with start(**BY_HAND) as running, await running.client() as client:
        assert await offsets(client, "out", 1, -2) == [2]


@pytest.fixture
def no_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver program that cannot run."""
    monkeypatch.setattr(
        "barnabas.broker.jobs.driver_process.DriverProcess._command",
        lambda _: [
            "/bin/sh",
            "-c",
            """echo '{"event": "streams.fatal", "level": "error", "reason": "no Java here"}'""",
        ],
    )


@NEEDS_SPARK
@pytest.mark.usefixtures("no_driver")
async def test_a_driver_that_cannot_run_is_an_answer_and_the_broker_goes_on(start: Start) -> None:
    async with start() as running, await running.client() as client:
        await client.create_topic("src")
        for _ in range(2):
            answer = await create(client, "out", barnabas_query="SELECT * FROM src")
            assert (answer.error_code, answer.error_message) == (ErrorCode.INVALID_REQUEST, "no Java here")
        assert (await client.produce("src", batch_of(b"a"))).error_code == 0
        assert "no Java here" in running.log


async def test_nobody_but_who_reads_the_secret_is_the_driver(start: Start) -> None:
    """Not with the old name, a guess, or an earlier secret; nor with the driver's own producer id."""
    async with start(**BY_HAND) as running, driver_of(running) as driver:
        old = driver.writer_id
        assert old.startswith(WRITER_ID + ":")
        path = Path(running.node.config.data_dir) / SECRET_FILE
        assert path.stat().st_mode & 0o777 == 0o600
        client = await running.client()
        assert (await create(client, "source", 1)).error_code == 0
        assert (await create(client, "results", barnabas_query="SELECT a FROM source")).error_code == 0
        for name in (WRITER_ID, f"{WRITER_ID}:", f"{WRITER_ID}:{'0' * 64}", old[:-1], old + "0"):
            answer = await client.ask(InitProducerIdRequest(transactional_id=name))
            assert answer.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
            driver.client, driver.writer_id, real = client, name, driver.client
            for topic in ("results", QUERIES_TOPIC):
                told = await driver.write(topic, driver.covering(0, 1))
                assert told.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
            driver.client, driver.writer_id = real, old
        for topic in ("results", QUERIES_TOPIC):
            assert (await client.produce(topic, driver.covering(0, 1))).error_code != 0
        assert (await driver.write("results", driver.covering(0, 1))).error_code == 0
    async with start(**BY_HAND) as running:
        assert path.read_text() != old
        client = await running.client()
        answer = await client.ask(InitProducerIdRequest(transactional_id=old))
        assert answer.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


async def test_the_log_of_the_driver_is_the_brokers(start: Start) -> None:
    """A client can neither create it with wrong settings beforehand, nor change or delete it."""
    async with start(**BY_HAND) as running:
        client = await running.client()
        assert (await create(client, QUERIES_TOPIC, 3)).error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
        async with driver_of(running) as driver:
            assert (await create(client, "source", 1)).error_code == 0
            assert (await alter(client, QUERIES_TOPIC, max_message_bytes="1")).error_code != 0
            deleted = DeleteTopicsRequest(topics=[DeleteTopicState(name=QUERIES_TOPIC)], timeout_ms=1000)
            assert (await client.ask(deleted)).responses[0].error_code != 0
            more = CreatePartitionsRequest(topics=[CreatePartitionsTopic(QUERIES_TOPIC, 4, None)], timeout_ms=1000)
            assert (await client.ask(more)).results[0].error_code != 0
            assert driver.producer_id >= 0
            assert (await create(client, "results", barnabas_query="SELECT a FROM source")).error_code == 0


async def test_a_pattern_that_backtracks_is_no_load_and_one_that_is_none_stops_nothing(start: Start) -> None:
    """This holds also for a stored pattern when the broker starts again."""
    async with start(**BY_HAND) as running, driver_of(running):
        client = await running.client()
        assert (await create(client, "a" * 200, 1)).error_code == 0
        assert (await create(client, "bad", barnabas_query="SELECT x FROM topics('(a+)+b')")).error_code == 0
        assert (await create(client, "worse", barnabas_query="SELECT x FROM topics('(?=a)')")).error_code == 0
        assert (await create(client, "a" * 201, 1)).error_code == 0
        told = await create(client, "long", barnabas_query="SELECT a FROM source -- " + "x" * 20_000)
        assert told.error_code == ErrorCode.INVALID_CONFIG
        assert "at most 16384" in told.error_message
    async with start(**BY_HAND) as running:
        client = await running.client()
        assert (await create(client, "a" * 202, 1)).error_code == 0
