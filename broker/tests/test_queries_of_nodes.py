"""Query topics and streams whose partitions other nodes lead. The owner of the metadata makes them."""

from __future__ import annotations

import uuid
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from barnabas.broker.reading import offsets as reading
from barnabas.broker.tests.client import NOW, Client, batch_of
from barnabas.broker.tests.conftest import until
from barnabas.broker.tests.several import OWNER, Several, several
from barnabas.broker.tests.test_queries import FakeDriver, alter, configs_of, create
from barnabas.broker.tests.test_streams import driver_of, make
from barnabas.wire.errors import ErrorCode
from barnabas.wire.internal_topics import QUERIES_TOPIC
from barnabas.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from barnabas.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from barnabas.wire.messages.init_producer_id import InitProducerIdRequest
from barnabas.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from barnabas.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.wire.queries.keys import CLOSING

EARLIEST, LATEST = -2, -1
QUERY = "SELECT * FROM src"


def three(path: Path) -> AbstractAsyncContextManager[Several]:
    """Three nodes that start no driver: the test acts as the driver."""
    return several(path, barnabas_streams_driver="none")


async def produced(nodes: Several, topic: str, index: int, *values: bytes) -> Any:
    """Produce records to the leader of a partition, over a new connection."""
    leader = nodes.owner.metadata.topics[topic].partitions[index].node
    async with await nodes[leader].client() as client:
        return await client.produce(topic, batch_of(*values), index)


async def offsets(nodes: Several, topic: str, special: int) -> list[int]:
    """The offset of each partition, from its leader."""
    found = []
    for index, leader in sorted((await nodes.leaders(topic)).items()):
        asked = ListOffsetsTopic(topic, [ListOffsetsPartition(index, timestamp=special)])
        answer = await (await nodes.client(leader)).ask(ListOffsetsRequest(replica_id=-1, topics=[asked]))
        found.append(answer.topics[0].partitions[0].offset)
    return found


async def make_source(nodes: Several) -> Client:
    """Create a topic with partitions led by three nodes, that end at 3, 0 and 2. Returns a client of the last node."""
    client = await nodes.client(3)
    await client.create_topic("src", 3)
    assert sorted((await nodes.leaders("src")).values()) == [1, 2, 3]
    await produced(nodes, "src", 0, b"a", b"b", b"c")
    await produced(nodes, "src", 2, b"d", b"e")
    return client


async def write(nodes: Several, driver: FakeDriver, topic: str, index: int, data: bytes, node: int = 0) -> int:
    """Write as the driver to the leader of a partition."""
    client = await nodes.client(node or (await nodes.leaders(topic))[index])
    part = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index, data)])
    request = ProduceRequest(transactional_id=driver.writer_id, acks=-1, topic_data=[part])
    return int((await client.ask(request, 12)).responses[0].partition_responses[0].error_code)


async def test_a_query_begins_where_the_leaders_say_that_its_source_ends(tmp_path: Path) -> None:
    async with three(tmp_path) as nodes, driver_of(nodes[OWNER]) as driver:
        client = await make_source(nodes)
        assert (await create(client, "all", barnabas_query=QUERY)).error_code == 0
        assert (await create(client, "new", barnabas_query=QUERY, barnabas_query_start="latest")).error_code == 0
        assert (await create(client, "since", barnabas_query=QUERY, barnabas_query_start=str(NOW))).error_code == 0
        late = await create(client, "late", barnabas_query=QUERY, barnabas_query_start=str(NOW + 10**9))
        assert late.error_code == 0
        assert await offsets(nodes, "all", EARLIEST) == await offsets(nodes, "since", EARLIEST) == [0, 0, 0]
        assert await offsets(nodes, "new", EARLIEST) == await offsets(nodes, "new", LATEST) == [3, 0, 2]
        assert await offsets(nodes, "late", EARLIEST) == [3, 0, 2]
        pattern = await create(
            client, "merged", barnabas_query="SELECT * FROM topics('sr.*')", barnabas_query_start="latest"
        )
        assert pattern.error_code == 0
        plan = msgspec.json.decode((await configs_of(client, "merged"))["barnabas.query.plan"] or "")
        assert plan["starts"] == {"src": [3, 0, 2]}
        for index in range(3):
            assert await write(nodes, driver, "new", index, driver.covering([3, 0, 2][index], 9)) == 0
        assert (await create(client, "new.dead-letter", barnabas_query_dead_letter_of="new")).error_code == 0
        assert await offsets(nodes, "new.dead-letter", EARLIEST) == [9, 9, 9]
        nodes.no_errors()


async def test_a_stream_begins_where_the_leaders_say_that_its_source_ends(tmp_path: Path) -> None:
    async with three(tmp_path) as nodes, driver_of(nodes[OWNER]):
        client = await make_source(nodes)
        assert (await make(client, "out")).error_code == 0
        plan = msgspec.json.decode((await configs_of(client, "out"))["barnabas.stream.plan"] or "")
        assert (plan["source_id"], plan["starts"]) == (
            str(uuid.UUID(bytes=nodes.owner.metadata.topics["src"].topic_id)),
            [3, 0, 2],
        )
        await client.create_topic("has", 3)
        await produced(nodes, "has", 2, b"a record without a schema")
        refused = await alter(client, "has", barnabas_stream="SELECT n FROM src INTERVAL(1s)")
        assert refused.error_code == ErrorCode.INVALID_CONFIG
        assert "has held records" in (refused.error_message or "")
        nodes.no_errors()


async def test_every_node_knows_the_driver_and_a_second_one_takes_over_everywhere(tmp_path: Path) -> None:
    async with three(tmp_path) as nodes:
        async with driver_of(nodes[OWNER]) as old:
            client = await make_source(nodes)
            assert (await create(client, "out", barnabas_query=QUERY)).error_code == 0
        assert await nodes.leaders(QUERIES_TOPIC) == {0: OWNER}
        for index in range(3):
            assert await write(nodes, old, "out", index, old.covering(0, 5)) == 0
            code = (await produced(nodes, "out", index, b"x")).error_code
            assert code == ErrorCode.INVALID_TOPIC_EXCEPTION
        new = FakeDriver(nodes[OWNER])
        answer = await client.ask(InitProducerIdRequest(transactional_id=new.writer_id))
        assert answer.error_code == 0
        new.producer_id = answer.producer_id
        for index in range(3):
            code = await write(nodes, old, "out", index, old.covering(5, 6))
            assert code == ErrorCode.INVALID_PRODUCER_EPOCH
            assert await write(nodes, new, "out", index, new.covering(5, 6)) == 0
        for node in (1, 3):  # a restarted node knows it, too
            await nodes.cut_off(node)
            await nodes.start(node)
        for index in range(3):
            assert await write(nodes, old, "out", index, old.covering(6, 7)) == ErrorCode.INVALID_PRODUCER_EPOCH
            assert await write(nodes, new, "out", index, new.covering(6, 7)) == 0


async def test_a_query_topic_grows_with_its_source_and_goes_with_its_dead_letters(tmp_path: Path) -> None:
    async with three(tmp_path) as nodes, driver_of(nodes[OWNER]):
        client = await make_source(nodes)
        assert (await create(client, "out", barnabas_query=QUERY)).error_code == 0
        assert (await create(client, "out.dead-letter", barnabas_query_dead_letter_of="out")).error_code == 0
        grown = CreatePartitionsTopic(name="src", count=6, assignments=None)
        assert (await client.ask(CreatePartitionsRequest(topics=[grown]))).results[0].error_code == 0
        await until(lambda: len(nodes[3].node.metadata.topics["out"].partitions) == 6)
        gone = DeleteTopicsRequest(topics=[DeleteTopicState(name="out")], timeout_ms=1000)
        assert (await client.ask(gone, 6)).responses[0].error_code == 0
        for node in (1, 2, 3):
            assert not {"out", "out.dead-letter"} & set(nodes[node].node.metadata.topics)
            assert not {"out", "out.dead-letter"} & nodes[node].node.queries.closed
        nodes.no_errors()


async def test_an_empty_topic_that_other_nodes_lead_becomes_a_query_topic(tmp_path: Path) -> None:
    async with three(tmp_path) as nodes, driver_of(nodes[OWNER]) as driver:
        client = await make_source(nodes)
        await client.create_topic("out", 3)
        assert (await alter(client, "out", barnabas_query=QUERY, barnabas_query_start="latest")).error_code == 0
        assert await offsets(nodes, "out", EARLIEST) == await offsets(nodes, "out", LATEST) == [3, 0, 2]
        for index in range(3):
            assert (await produced(nodes, "out", index, b"x")).error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
            assert await write(nodes, driver, "out", index, driver.covering([3, 0, 2][index], 9)) == 0
        assert CLOSING not in nodes[3].node.metadata.topics["out"].configs
        nodes.no_errors()
    async with three(tmp_path) as nodes:
        assert await offsets(nodes, "out", EARLIEST) == [3, 0, 2]
        assert await offsets(nodes, "out", LATEST) == [9, 9, 9]


@pytest.mark.parametrize("index", range(3))
async def test_a_record_that_comes_while_the_driver_is_asked_leaves_an_ordinary_topic(
    tmp_path: Path, index: int
) -> None:
    async with three(tmp_path) as nodes, driver_of(nodes[OWNER]) as driver:
        client = await make_source(nodes)
        await client.create_topic("out", 3)

        async def meanwhile() -> None:
            assert (await produced(nodes, "out", index, b"mine")).error_code == 0

        driver.meanwhile = meanwhile
        refused = await alter(client, "out", barnabas_query=QUERY)
        assert refused.error_code == ErrorCode.INVALID_CONFIG
        assert "out has held records" in (refused.error_message or "")
        for node in (1, 2, 3):
            topic = nodes[node].node.metadata.topics["out"]
            assert not [key for key in topic.configs if key.startswith("barnabas.query")]
        for each in range(3):
            assert (await produced(nodes, "out", each, b"mine")).error_code == 0
        nodes.no_errors()


async def test_no_record_slips_in_between_the_look_at_the_ends_and_the_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clients try to write after the leaders have reported empty logs, and before the plan is written."""
    codes: list[int] = []
    async with three(tmp_path) as nodes, driver_of(nodes[OWNER]):
        client = await make_source(nodes)
        await client.create_topic("out", 3)
        original = nodes.owner.queries._ends_elsewhere

        async def ends(topic: Any) -> Any:
            found = await original(topic)
            if CLOSING in nodes.owner.metadata.topics["out"].configs:
                codes.extend([(await produced(nodes, "out", index, b"mine")).error_code for index in range(3)])
            return found

        monkeypatch.setattr(nodes.owner.queries, "_ends_elsewhere", ends)
        assert (await alter(client, "out", barnabas_query=QUERY)).error_code == 0
        assert codes == [ErrorCode.INVALID_TOPIC_EXCEPTION] * 3
        assert await offsets(nodes, "out", LATEST) == [0, 0, 0]
        nodes.no_errors()


async def test_a_topic_that_the_owner_left_closed_is_open_after_its_start(tmp_path: Path) -> None:
    async with three(tmp_path) as nodes:
        await (await nodes.client(3)).create_topic("out", 3)
        await nodes.owner.queries._close(nodes.owner.metadata.topics["out"])
        await until(lambda: "out" in nodes[3].node.queries.closed)
        await nodes.cut_off(OWNER)
        await nodes.start(OWNER)
        await until(lambda: not any("out" in nodes[number].node.queries.closed for number in (OWNER, 2, 3)))
        for index in range(3):
            assert (await produced(nodes, "out", index, b"mine")).error_code == 0


async def test_a_leader_that_is_away_is_waited_for_and_then_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with three(tmp_path) as nodes, driver_of(nodes[OWNER]):
        await make_source(nodes)
        client = await nodes.client(OWNER)
        (index,) = (index for index, leader in (await nodes.leaders("src")).items() if leader == 2)
        await nodes.cut_off(2)
        with monkeypatch.context() as impatient:
            impatient.setattr(reading, "PATIENCE_SECONDS", 0.1)
            told = await create(client, "out", barnabas_query=QUERY)
        assert told.error_code == ErrorCode.REQUEST_TIMED_OUT
        assert told.error_message == (
            f"Node 2, which should lead src-{index}, does not answer: try again when all nodes serve."
        )
        await nodes.start(2)
        assert (await create(client, "out", barnabas_query=QUERY)).error_code == 0


async def test_only_nodes_are_told_where_a_log_ends_that_is_not_durable(tmp_path: Path) -> None:
    async with three(tmp_path) as nodes:
        await make_source(nodes)
        vnode = nodes.owner.partitions.led("src", next(i for i, n in (await nodes.leaders("src")).items() if n == 1))
        end = vnode.log_end_offset
        nodes.owner.flusher.request = lambda *_: None  # type: ignore[method-assign]
        vnode.append(batch_of(b"not durable"), now_ms=NOW)
        asked = ListOffsetsTopic("src", [ListOffsetsPartition(vnode.partition, timestamp=LATEST)])
        request = ListOffsetsRequest(replica_id=2, topics=[asked])
        told = await (await nodes.client(OWNER)).ask(request)
        assert told.topics[0].partitions[0].offset == vnode.high_watermark
        assert nodes[2].node.together is not None
        ours = await nodes[2].node.together.channels.ask(OWNER, request)
        assert ours.topics[0].partitions[0].offset == vnode.log_end_offset == end + 1
