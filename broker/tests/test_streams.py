"""Streams from the broker's side. The tests act as the streams driver, so they need no Spark."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import trio

from barnabas.broker.tests.client import Client, batch_of
from barnabas.broker.tests.conftest import Running, Start
from barnabas.broker.tests.test_queries import BY_HAND, DELETE, SET, TOPIC, FakeDriver, configs_of, create
from barnabas.wire.batch import Record, build_batch
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from barnabas.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from barnabas.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from barnabas.wire.messages.delete_groups import DeleteGroupsRequest
from barnabas.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from barnabas.wire.messages.end_txn import EndTxnRequest
from barnabas.wire.messages.find_coordinator import FindCoordinatorRequest
from barnabas.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from barnabas.wire.messages.init_producer_id import InitProducerIdRequest
from barnabas.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from barnabas.wire.messages.list_transactions import ListTransactionsRequest
from barnabas.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas.wire.messages.offset_delete import OffsetDeleteRequest
from barnabas.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from barnabas.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from barnabas.wire.queries.writer import WRITER_ID
from barnabas.wire.streams.keys import GROUP

STREAM = "SELECT n FROM {} INTERVAL(1s)"
NOT_YOURS, NOT_YOUR_GROUP = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, ErrorCode.GROUP_AUTHORIZATION_FAILED


class FakeStreamsDriver(FakeDriver):
    """Answers about each stream that it reads the topic after FROM, beginning at `begins`."""

    begins = "latest"

    async def hear(self, message: dict[str, Any]) -> None:
        if message["type"] != "check_stream":
            await super().hear(message)
            return
        self.messages.append(message)
        if self.meanwhile is not None:
            await self.meanwhile()
        source = message["stream"].split("FROM ")[1].split()[0]
        topic = self.node.metadata.topics[source]
        answer = {"type": "checked_stream", "id": message["id"], "source": source, "begins": self.begins}
        answer |= {"source_id": str(uuid.UUID(bytes=topic.topic_id)), "format": "json", "schema": "n INT"}
        answer |= {"output_schema": "n INT", **({"error": self.error} if self.error else {})}
        await self.say(answer)


@asynccontextmanager
async def driver_of(running: Running) -> AsyncIterator[FakeStreamsDriver]:
    driver = FakeStreamsDriver(running)
    async with trio.open_nursery() as nursery:
        await nursery.start(driver.serve)
        yield driver
        nursery.cancel_scope.cancel()


async def driver_hears_of_a_change(driver: FakeStreamsDriver) -> None:
    with trio.fail_after(60):
        while {"type": "changed"} not in driver.messages:
            await trio.lowlevel.checkpoint()


async def alter(client: Client, name: str, **configs: str | None) -> Any:
    """Set keys; None deletes a key."""
    entries = [
        AlterableConfig(key.replace("_", "."), DELETE if value is None else SET, value)
        for key, value in configs.items()
    ]
    request = IncrementalAlterConfigsRequest(resources=[AlterConfigsResource(TOPIC, name, entries)])
    return (await client.ask(request)).responses[0]


async def make(client: Client, name: str = "out", source: str = "src", **configs: Any) -> Any:
    return await create(client, name, barnabas_stream=STREAM.format(source), **configs)


async def test_a_stream_is_a_topic_whose_plan_the_broker_fixes(start: Start) -> None:
    async with start(**BY_HAND) as running, driver_of(running) as driver, await running.client() as client:
        await client.create_topic("src", 2)
        await client.produce("src", batch_of(b"a", b"b"))
        made = await make(client, barnabas_stream_name="sums")
        assert made.error_code == 0, made.error_message
        found = await configs_of(client, "out")
        plan = msgspec.json.decode(found["barnabas.stream.plan"] or "")
        source_id = str(uuid.UUID(bytes=running.node.metadata.topics["src"].topic_id))
        assert (plan["source"], plan["source_id"], plan["starts"]) == ("src", source_id, [2, 0])
        assert (found["barnabas.stream.name"], found["barnabas.value.schema"]) == ("sums", "n INT")
        await driver_hears_of_a_change(driver)
        driver.begins = "earliest"
        assert (await make(client, "all")).error_code == 0
        assert msgspec.json.decode((await configs_of(client, "all"))["barnabas.stream.plan"] or "")["starts"] == [0, 0]
        assert (await client.produce("out", batch_of(b"mine"))).error_code == 0  # it is still an ordinary topic
    async with start(**BY_HAND) as running, await running.client() as client:
        assert set(running.node.streams.plans) == {"out", "all"}
        assert (await configs_of(client, "out"))["barnabas.stream.name"] == "sums"


async def test_a_topic_that_is_there_gets_a_stream_pauses_it_and_loses_it_with_all_its_keys(start: Start) -> None:
    async with start(**BY_HAND) as running, driver_of(running) as driver, await running.client() as client:
        await client.create_topic("src")
        await client.create_topic("out", 2)
        before = await configs_of(client, "out")
        assert (await alter(client, "out", barnabas_stream=STREAM.format("src"))).error_code == 0
        assert (await alter(client, "out", barnabas_stream_state="paused", barnabas_stream_run="1")).error_code == 0
        assert (await configs_of(client, "out"))["barnabas.stream.state"] == "paused"
        answer = await alter(client, "out", barnabas_stream_state="resting")
        assert answer.error_code == ErrorCode.INVALID_CONFIG
        driver.messages.clear()
        assert (await alter(client, "out", barnabas_stream=None)).error_code == 0
        found = await configs_of(client, "out")
        assert {key for key in found if found[key] != before.get(key)} == {
            "barnabas.owner",
            "barnabas.value.schema",
            "barnabas.value.format",
        }
        assert not running.node.streams.plans
        await driver_hears_of_a_change(driver)


async def test_what_cannot_be_a_stream_is_refused_and_nothing_has_changed(start: Start) -> None:
    async with start(**BY_HAND) as running, driver_of(running) as driver, await running.client() as client:
        for name in ("src", "full", "free"):
            await client.create_topic(name)
        await client.produce("full", batch_of(b"mine"))
        assert (await make(client, "sums", barnabas_stream_name="s")).error_code == 0
        assert (await create(client, "query", barnabas_query="SELECT * FROM src")).error_code == 0
        text = STREAM.format("src")
        for name, settings, told in [
            ("full", {"barnabas_stream": text}, "full has held records, and has no barnabas.value.schema"),
            ("query", {"barnabas_stream": text}, "of a query or of a stream, not of both"),
            ("sums", {"barnabas_query": "SELECT * FROM src"}, "of a query or of a stream, not of both"),
            ("sums", {"barnabas_stream": STREAM.format("free")}, "drop that stream before"),
            ("sums", {"barnabas_stream_name": "t"}, "fixed when a stream is made"),
            ("sums", {"barnabas_stream_plan": "{}"}, "fixed when a stream is made"),
            ("free", {"barnabas_stream_plan": "{}"}, "set by the broker"),
            ("free", {"barnabas_stream_state": "paused"}, "barnabas.stream.state needs barnabas.stream"),
            (
                "free",
                {"barnabas_stream": text, "barnabas_stream_name": "s"},
                "A stream named s already writes into sums",
            ),
            ("src", {"barnabas_stream": STREAM.format("sums")}, "would read its own results in src"),
            ("src", {"barnabas_stream": text}, "would read its own results in src"),
        ]:
            before = dict(running.node.metadata.topics[name].configs)
            answer = await alter(client, name, **settings)
            assert (answer.error_code, told in answer.error_message) == (ErrorCode.INVALID_CONFIG, True), answer
            assert running.node.metadata.topics[name].configs == before
        alone: Any
        for alone in (
            {"barnabas_stream_plan": "{}"},
            {"barnabas_stream_state": "paused"},
            {"barnabas_stream": text, "barnabas_query": "SELECT * FROM src"},
            {"barnabas_stream": " " * 17_000 + text},
        ):
            refused = await create(client, "new", **alone)
            assert refused.error_code == ErrorCode.INVALID_CONFIG, alone
        driver.error = "line 1, column 2: expected FROM"
        refused = await make(client, "new")
        assert (refused.error_code, refused.error_message) == (ErrorCode.INVALID_CONFIG, driver.error)
        assert "new" not in running.node.metadata.topics


async def test_streams_are_as_many_as_the_operator_allows_and_the_driver_hears_of_more_partitions(
    start: Start,
) -> None:
    async with (
        start(**BY_HAND, barnabas_streams_count_max="1") as running,
        driver_of(running) as driver,
        await running.client() as client,
    ):
        await client.create_topic("src")
        assert (await make(client, "one")).error_code == 0
        refused = await make(client, "two")
        assert refused.error_code == ErrorCode.INVALID_CONFIG
        assert "as many as barnabas.streams.count.max allows" in refused.error_message
        await driver_hears_of_a_change(driver)
        driver.messages.clear()
        grown = CreatePartitionsTopic(name="one", count=3, assignments=None)
        assert (await client.ask(CreatePartitionsRequest(topics=[grown]))).results[0].error_code == 0
        await driver_hears_of_a_change(driver)
        assert (await alter(client, "one", barnabas_stream=None)).error_code == 0
        assert (await make(client, "two")).error_code == 0


async def test_a_source_that_is_made_again_while_the_driver_looks_is_refused(start: Start) -> None:
    async with start(**BY_HAND) as running, driver_of(running) as driver, await running.client() as client:
        await client.create_topic("src")

        say = driver.say

        async def renew_and_say(message: dict[str, Any]) -> None:
            other = await running.client()
            await other.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name="src")]))
            await other.create_topic("src")
            await say(message)

        driver.say = renew_and_say  # type: ignore[method-assign]
        refused = await make(client)
        assert refused.error_code == ErrorCode.INVALID_CONFIG
        assert "created again meanwhile" in refused.error_message


async def test_the_driver_writes_results_and_progress_in_a_transaction_and_nobody_else_may(start: Start) -> None:
    async with start(**BY_HAND) as running, driver_of(running) as driver, await running.client() as client:
        await client.create_topic("out")
        mine, known = f"{driver.writer_id}/out", f"{WRITER_ID}/out"
        await client.ask(FindCoordinatorRequest(key=known, key_type=1), 3)
        await client.ask(FindCoordinatorRequest(key=GROUP), 3)
        began = await client.ask(InitProducerIdRequest(transactional_id=mine, transaction_timeout_ms=60_000))
        assert began.error_code == 0
        told = await client.ask(ListTransactionsRequest())
        assert [state.transactional_id for state in told.transaction_states] == [known]  # without the secret
        who = {"producer_id": began.producer_id, "producer_epoch": began.producer_epoch}
        batch = build_batch([Record(None, b"1", 5)], **who, base_sequence=0, is_transactional=True)

        async def write(transactional_id: str) -> int:
            data = [TopicProduceData(name="out", partition_data=[PartitionProduceData(0, batch)])]
            request = ProduceRequest(transactional_id=transactional_id, acks=-1, topic_data=data)
            return int((await client.ask(request, 12)).responses[0].partition_responses[0].error_code)

        async def commit(transactional_id: str, group: str = GROUP) -> int:
            parts = [TxnOffsetCommitRequestPartition(0, 7, committed_metadata="x")]
            request = TxnOffsetCommitRequest(
                transactional_id, group, **who, topics=[TxnOffsetCommitRequestTopic("out", parts)]
            )
            return int((await client.ask(request, 5)).topics[0].partitions[0].error_code)

        async def end(transactional_id: str) -> int:
            return int((await client.ask(EndTxnRequest(transactional_id, **who, committed=True), 5)).error_code)

        assert await write(mine) == 0
        for stranger in (known, WRITER_ID, f"{WRITER_ID}:0000/out", f"{WRITER_ID}/", f"{mine[:-4]}"):
            if stranger == driver.writer_id:
                continue
            codes = {await write(stranger), await commit(stranger), await end(stranger)}
            codes.add((await client.ask(InitProducerIdRequest(transactional_id=stranger))).error_code)
            codes.add((await client.ask(AddOffsetsToTxnRequest(stranger, **who, group_id=GROUP))).error_code)
            asked = AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=stranger,
                v3_and_below_producer_id=began.producer_id,
                v3_and_below_producer_epoch=began.producer_epoch,
                v3_and_below_topics=[AddPartitionsToTxnTopic("out", [0])],
            )
            told = await client.ask(asked, 3)
            codes.add(told.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code)
            assert codes == {NOT_YOURS}, stranger
        assert await commit("a-stranger") == NOT_YOUR_GROUP
        assert await commit(mine, "another-group") == NOT_YOUR_GROUP
        assert await commit(mine) == 0
        assert await end(mine) == 0
        fetch = OffsetFetchRequest(group_id=GROUP, topics=[OffsetFetchRequestTopic("out", [0])])
        with trio.fail_after(60):  # the markers follow the end of the transaction
            while (part := (await client.ask(fetch, 7)).topics[0].partitions[0]).committed_offset < 0:
                await trio.lowlevel.checkpoint()
        assert (part.committed_offset, part.metadata) == (7, "x")
        part = await client.fetch("out")
        assert part.error_code == 0
        assert part.records


async def test_the_group_of_a_stream_is_the_drivers(start: Start) -> None:
    async with start(**BY_HAND) as running, await running.client() as client:
        await client.create_topic("out")
        assert (await alter(client, "out", barnabas_stream_state="running")).error_code == 0  # "running" is the default
        group = GROUP
        await client.ask(FindCoordinatorRequest(key=group), 3)
        offsets = [OffsetCommitRequestTopic("out", partitions=[OffsetCommitRequestPartition(0, 9)])]
        told = await client.ask(OffsetCommitRequest(group, topics=offsets), 9)
        assert told.topics[0].partitions[0].error_code == NOT_YOUR_GROUP
        protocols = [JoinGroupRequestProtocol("range", b"")]
        asked = JoinGroupRequest(
            group_id=group, protocol_type="consumer", protocols=protocols, session_timeout_ms=10_000
        )
        assert (await client.ask(asked)).error_code == NOT_YOUR_GROUP
        assert (await client.ask(OffsetDeleteRequest(group, []))).error_code == NOT_YOUR_GROUP
        assert (await client.ask(DeleteGroupsRequest([group]))).results[0].error_code == NOT_YOUR_GROUP
        told = await client.ask(OffsetCommitRequest("mine", topics=offsets), 9)  # the next request on the connection
        assert told.topics[0].partitions[0].error_code == 0
