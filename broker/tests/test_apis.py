"""What clients see of single requests: order, long polls, sessions, whole batches, special offsets, validation."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from barnabas.broker.reading.fetch_sessions import EVICTION_SECONDS, FetchSessions
from barnabas.broker.tests.client import NOW, Client, batch_of, fetch_request, produce_request
from barnabas.broker.tests.conftest import Start
from barnabas.storage.crc_check import CrcCheck
from barnabas.storage.local_vnode import LocalVnode
from barnabas.wire.batch import Record, build_batch, iter_batches, iter_records
from barnabas.wire.errors import ErrorCode, KafkaError
from barnabas.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from barnabas.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from barnabas.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from barnabas.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    ReplicaState,
)
from barnabas.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from barnabas.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from barnabas.wire.messages.metadata import MetadataRequest


def values_of(records: bytes | memoryview) -> list[tuple[int, bytes | None]]:
    return [(r.offset, r.value) for _, view in iter_batches(records) for r in iter_records(view)]


# --- order and waiting ------------------------------------------------------------------------------------------------


async def test_answers_come_in_request_order_whatever_they_wait_for(start: Start) -> None:
    async with start() as broker, await broker.client() as client:
        await client.create_topic("t")
        await client.create_topic("empty")
        for number in range(10):
            await client.send(fetch_request("empty", max_wait_ms=30))
            await client.send(MetadataRequest(topics=[]))
            await client.send(produce_request("t", batch_of(b"%d" % number)), 9)
            await client.send(fetch_request("t", number), 12)
        for number in range(10):  # decodes the answer to the oldest request and checks its id
            assert (await client.receive()).responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
            assert (await client.receive()).brokers
            assert (await client.receive()).responses[0].partition_responses[0].base_offset == number
            await client.receive()


async def test_a_long_poll_ends_when_there_is_enough(start: Start) -> None:
    async with start() as broker, await broker.client() as client, await broker.client() as writer:
        await client.create_topic("t")
        size = len(batch_of(b"x"))
        await client.send(fetch_request("t", max_wait_ms=60_000, min_bytes=2 * size), 12)
        await writer.produce("t", batch_of(b"x"))
        await writer.produce("t", batch_of(b"y"))
        answer = await client.receive()
        assert values_of(answer.responses[0].partitions[0].records) == [(0, b"x"), (1, b"y")]


async def test_a_long_poll_ends_at_its_time_and_when_the_topic_goes(start: Start) -> None:
    async with start() as broker, await broker.client() as client, await broker.client() as other:
        await client.create_topic("t")
        assert not (await client.fetch("t", max_wait_ms=20)).records
        await client.send(fetch_request("t", max_wait_ms=60_000), 12)
        await other.ask(fetch_request("t"), 12)
        await broker.node.topics.delete("t")
        answer = (await client.receive()).responses[0].partitions[0]
        assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize(
    "replica", [{"replica_id": 1}, {"replica_state": ReplicaState(7)}], ids=["version 12", "version 16"]
)
async def test_a_client_that_says_to_be_a_replica_reads_nothing(start: Start, replica: dict[str, Any]) -> None:
    version, absent = (
        (12, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) if "replica_id" in replica else (16, ErrorCode.UNKNOWN_TOPIC_ID)
    )
    async with start() as broker, await broker.client() as client:
        await client.create_topic("t")
        assert (await client.produce("t", batch_of(b"v"))).error_code == 0
        (found,) = broker.node.metadata.topics.values()
        for name, topic_id, expected in (
            ("t", found.topic_id, ErrorCode.NOT_LEADER_OR_FOLLOWER),
            ("u", bytes(15) + b"u", absent),
        ):
            topic = FetchTopic(name, topic_id, [FetchPartition(0, partition_max_bytes=1000)])
            answer = await client.ask(FetchRequest(session_epoch=-1, topics=[topic], **replica), version)
            part = answer.responses[0].partitions[0]
            assert (part.error_code, part.records) == (expected, b"")


async def test_a_fetch_inside_a_batch_gives_the_whole_batch_whatever_its_limit(start: Start) -> None:
    async with start() as broker, await broker.client() as client:
        await client.create_topic("t")
        await client.produce("t", batch_of(b"a", b"b", b"c"))
        await client.produce("t", batch_of(b"d"))
        found = await client.fetch("t", 1, max_bytes=1, partition_max_bytes=1)
        assert values_of(found.records) == [(0, b"a"), (1, b"b"), (2, b"c")]
        assert (await client.fetch("t", 4)).records == b""
        assert (await client.fetch("t", 5)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert (await client.fetch("t", -1)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


# The tests below would take an hour if the broker waited.
AN_HOUR = 3_600_000


async def test_a_fetch_at_the_end_of_an_older_segment_is_answered_at_once(start: Start) -> None:
    async with start() as broker, await broker.client() as client:
        await client.create_topic("t", segment_bytes="1024")
        for number in range(8):  # two batches in each segment
            await client.produce("t", batch_of(b"%d" % number * 400))
        found = await client.fetch("t", max_wait_ms=AN_HOUR, min_bytes=1 << 20)
        assert [offset for offset, _ in values_of(found.records)] == [0, 1]
        assert [offset for offset, _ in values_of((await client.fetch("t", 2)).records)] == [2, 3]


@pytest.mark.parametrize("limit", ["max_bytes", "partition_max_bytes", "fetch.max.bytes"])
async def test_what_a_limit_cuts_off_counts_as_found(limit: str, start: Start) -> None:
    settings = {"fetch_max_bytes": "1024"} if limit == "fetch.max.bytes" else {}
    async with start(**settings) as broker, await broker.client() as client:
        await client.create_topic("t")
        for number in range(8):
            await client.produce("t", batch_of(b"%d" % number * 400))
        asked = {} if settings else {limit: 1024}
        found = await client.fetch("t", max_wait_ms=AN_HOUR, min_bytes=1 << 20, **asked)
        assert [offset for offset, _ in values_of(found.records)] == [0, 1]


async def test_a_limit_of_one_partition_leaves_others_to_wait_for(start: Start) -> None:
    async with start() as broker, await broker.client() as client, await broker.client() as writer:
        await client.create_topic("t", 2)
        for _ in range(2):
            await writer.produce("t", batch_of(b"x" * 400))
        parts = [FetchPartition(partition=index, partition_max_bytes=500) for index in range(2)]
        topics = [FetchTopic(topic="t", partitions=parts)]
        await client.send(
            FetchRequest(max_wait_ms=AN_HOUR, min_bytes=1500, max_bytes=1 << 20, session_epoch=-1, topics=topics), 12
        )
        await writer.ask(fetch_request("t"), 12)
        waited_for = broker.node.partitions.get("t", 1)
        assert waited_for is not None
        assert waited_for.on_high_watermark.callables  # it waits
        for _ in range(2):
            await writer.produce("t", batch_of(b"y" * 400), 1)
        found = (await client.receive()).responses[0].partitions
        assert [len(values_of(part.records)) for part in found] == [1, 1]


async def test_a_waiting_fetch_looks_at_limits_too(start: Start) -> None:
    async with start() as broker, await broker.client() as client, await broker.client() as writer:
        await client.create_topic("t")
        await client.send(fetch_request("t", max_wait_ms=AN_HOUR, min_bytes=1 << 20, partition_max_bytes=500), 12)
        for _ in range(2):
            await writer.produce("t", batch_of(b"x" * 400))
        assert len(values_of((await client.receive()).responses[0].partitions[0].records)) == 1


# --- fetch sessions ---------------------------------------------------------------------------------------------------


async def in_session(
    client: Client,
    session: int,
    epoch: int,
    wanted: dict[int, int],
    forget: list[int] | None = None,
    max_bytes: int = 1 << 20,
) -> tuple[int, int, dict[int, list[int]]]:
    """(error, session id, offsets by partition) of a fetch from topic t."""
    parts = [FetchPartition(partition=p, fetch_offset=o, partition_max_bytes=1 << 20) for p, o in wanted.items()]
    answer = await client.ask(
        FetchRequest(
            session_id=session,
            session_epoch=epoch,
            max_bytes=max_bytes,
            min_bytes=0,
            topics=[FetchTopic(topic="t", partitions=parts)] if parts else [],
            forgotten_topics_data=[ForgottenTopic(topic="t", partitions=forget)] if forget else [],
        ),
        12,
    )
    found = {p.partition_index: [o for o, _ in values_of(p.records)] for t in answer.responses for p in t.partitions}
    return answer.error_code, answer.session_id, found


async def test_what_is_written_while_another_partition_is_checked_is_not_missed(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer does not have the record. Its session must not conclude that this partition has no data."""
    async with start() as broker, await broker.client() as client:
        await client.create_topic("t", 2)
        await client.produce("t", batch_of(b"old"), 0)
    async with start() as broker, await broker.client() as client, await broker.client() as writer:
        write_during_the_check(monkeypatch, writer)
        error, session, found = await in_session(client, 0, 0, {0: 0, 1: 0})
        assert (error, found[0]) == (0, [0])
        seen = found[1] or (await in_session(client, session, 1, {0: 1}))[2].get(1)
        assert seen == [0]


async def test_a_long_poll_counts_what_was_written_while_another_partition_was_checked(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with start() as broker, await broker.client() as client:
        await client.create_topic("t", 2)
        await client.produce("t", batch_of(b"old"), 0)
    async with start() as broker, await broker.client() as client, await broker.client() as writer:
        write_during_the_check(monkeypatch, writer)
        parts = [FetchPartition(partition=p, partition_max_bytes=1 << 20) for p in (0, 1)]
        topics = [FetchTopic(topic="t", partitions=parts)]
        both = len(batch_of(b"old") + batch_of(b"new"))
        answer = await client.ask(
            FetchRequest(max_wait_ms=AN_HOUR, min_bytes=both, max_bytes=1 << 20, session_epoch=-1, topics=topics), 12
        )
        values = [value for p in answer.responses[0].partitions for _, value in values_of(p.records)]
        assert values == [b"old", b"new"]


def write_during_the_check(monkeypatch: pytest.MonkeyPatch, writer: Client) -> None:
    """The first check of old batches lasts until a record was written to partition 1."""
    look = CrcCheck.run

    def look_slowly(check: CrcCheck) -> None:
        monkeypatch.setattr(CrcCheck, "run", look)
        trio.from_thread.run(writer.produce, "t", batch_of(b"new"), 1)
        look(check)

    monkeypatch.setattr(CrcCheck, "run", look_slowly)


async def test_a_session_answers_what_is_new_and_forgets_what_it_is_told_to(start: Start) -> None:
    async with start() as broker, await broker.client() as client:
        await client.create_topic("t", 3)
        error, session, found = await in_session(client, 0, 0, {0: 0, 1: 0, 2: 0})
        assert (error, found) == (0, {0: [], 1: [], 2: []})
        assert session
        assert await in_session(client, session, 1, {}) == (0, session, {})
        for partition in (1, 2):
            await client.produce("t", batch_of(b"x"), partition)
        assert await in_session(client, session, 2, {}, forget=[2]) == (0, session, {1: [0]})
        assert await in_session(client, session, 3, {1: 1}) == (0, session, {})
        assert (await in_session(client, session, 3, {}))[0] == ErrorCode.INVALID_FETCH_SESSION_EPOCH
        assert (await in_session(client, session + 1, 4, {}))[0] == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        assert (await in_session(client, session, -1, {1: 0}))[2] == {1: [0]}  # closes it
        assert (await in_session(client, session, 4, {}))[0] == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


async def test_a_session_names_topics_in_one_way(start: Start) -> None:
    """A client that changes from ids to names, or back, is told to open another session, and can continue there."""
    async with start() as broker, await broker.client() as client:
        await client.create_topic("a")
        await client.produce("a", batch_of(b"1"))
        topic_id = broker.node.metadata.topics["a"].topic_id

        async def fetch(version: int, session_id: int, epoch: int) -> FetchResponse:
            part = [FetchPartition(0, partition_max_bytes=1000)]
            topic = (
                FetchTopic(topic_id=topic_id, partitions=part) if version >= 13 else FetchTopic("a", partitions=part)
            )
            request = FetchRequest(session_id=session_id, session_epoch=epoch, topics=[topic], max_wait_ms=0)
            answer: FetchResponse = await client.ask(request, version)
            return answer

        for first, then in ((13, 12), (12, 13), (12, 17)):
            opened = await fetch(first, 0, 0)
            assert opened.session_id
            assert (await fetch(then, opened.session_id, 1)).error_code == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
            again = await fetch(first, opened.session_id, 1)
            assert not again.error_code, "the session is as it was"
            anew = await fetch(then, opened.session_id, 0)
            assert (anew.error_code, len(anew.responses)) == (0, 1)
            assert anew.session_id not in (0, opened.session_id)


async def test_a_small_limit_starves_no_partition_of_a_session(start: Start) -> None:
    async with start() as broker, await broker.client() as client:
        await client.create_topic("t", 3)
        for partition in range(3):
            for _ in range(4):
                await client.produce("t", batch_of(b"x"), partition)
        following = dict.fromkeys(range(3), 0)
        _, session, found = await in_session(client, 0, 0, following, max_bytes=1)
        served: list[int] = []
        for epoch in range(1, 10):
            now = {p: o[-1] + 1 for p, o in found.items() if o}
            served += now
            following.update(now)
            _, _, found = await in_session(client, session, epoch, now, max_bytes=1)
        assert set(served[:3]) == set(served[3:6]) == set(served[6:9]) == {0, 1, 2}


async def test_a_session_reads_only_partitions_that_have_news(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    async with start() as broker, await broker.client() as client:
        await client.create_topic("t", 50)
        _, session, found = await in_session(client, 0, 0, dict.fromkeys(range(50), 0))
        assert len(found) == 50
        read: list[int] = []
        whole = LocalVnode.read

        def counted(vnode: LocalVnode, *args: Any, **named: Any) -> Any:
            read.append(vnode.partition)
            return whole(vnode, *args, **named)

        monkeypatch.setattr(LocalVnode, "read", counted)
        assert await in_session(client, session, 1, {}) == (0, session, {})
        assert read == []
        await client.produce("t", batch_of(b"x"), 7)
        for epoch in (2, 3):  # the same records come again until the client says that it has them
            assert await in_session(client, session, epoch, {}) == (0, session, {7: [0]})
        assert await in_session(client, session, 4, {7: 1}) == (0, session, {})
        assert await in_session(client, session, 5, {}) == (0, session, {})
        assert read == [7, 7, 7]


async def test_a_quiet_partition_of_a_session_ends_its_long_poll(start: Start) -> None:
    async with start() as broker, await broker.client() as client, await broker.client() as other:
        await client.create_topic("t", 2)
        await client.create_topic("gone", 1)
        topics = [
            FetchTopic(topic="t", partitions=[FetchPartition(partition=p, partition_max_bytes=99) for p in range(2)]),
            FetchTopic(topic="gone", partitions=[FetchPartition(partition=0)]),
        ]
        first = await client.ask(FetchRequest(session_epoch=0, max_wait_ms=0, min_bytes=1, topics=topics), 12)

        def waiting(epoch: int, topics: list[FetchTopic]) -> FetchRequest:
            return FetchRequest(
                session_id=first.session_id, session_epoch=epoch, max_wait_ms=60_000, min_bytes=1, topics=topics
            )

        await client.send(waiting(1, []), 12)
        await other.produce("t", batch_of(b"x"), 1)
        (told,) = (await client.receive()).responses[0].partitions
        assert (told.partition_index, values_of(told.records)) == (1, [(0, b"x")])
        caught_up = FetchTopic(topic="t", partitions=[FetchPartition(partition=1, fetch_offset=1)])
        await client.send(waiting(2, [caught_up]), 12)
        await other.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name="gone")]))
        (topic,) = (await client.receive()).responses
        assert (topic.topic, topic.partitions[0].error_code) == ("gone", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


async def test_a_session_tells_of_a_log_start_that_moved(start: Start) -> None:
    async with start() as broker, await broker.client() as client:
        await client.create_topic("t")
        await client.produce("t", batch_of(b"x"))
        _, session, _ = await in_session(client, 0, 0, {0: 1})
        assert await in_session(client, session, 1, {}) == (0, session, {})
        broker.node.vnodes["t", 0].truncate_prefix(1)
        answer = await client.ask(FetchRequest(session_id=session, session_epoch=2, min_bytes=0), 12)
        assert answer.responses[0].partitions[0].log_start_offset == 1


def request_for(*partitions: int, session: int = 0, epoch: int = 0) -> FetchRequest:
    parts = [FetchPartition(partition=p) for p in partitions]
    return FetchRequest(session_id=session, session_epoch=epoch, topics=[FetchTopic(topic="t", partitions=parts)])


def test_a_session_makes_room_when_it_was_idle_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    sessions = FetchSessions(1)
    first = sessions.new_context(request_for(0), 0.0).session
    assert first
    assert sessions.new_context(request_for(1), EVICTION_SECONDS - 1).session is None
    assert sessions.new_context(request_for(1), EVICTION_SECONDS + 1).session
    with pytest.raises(KafkaError, match="no fetch session"):
        sessions.new_context(request_for(0, session=first.id, epoch=1), EVICTION_SECONDS + 1)


def test_all_sessions_together_remember_a_bounded_number_of_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("barnabas.broker.reading.fetch_sessions.MAX_PARTITIONS", 5)
    sessions = FetchSessions(100)
    first = sessions.new_context(request_for(0, 1, 2), 0.0).session
    assert first
    assert sessions.new_context(request_for(0, 1, 2), 0.0).session is None
    with pytest.raises(KafkaError, match="no room"):
        sessions.new_context(request_for(*range(3, 9), session=first.id, epoch=1), 0.0)
    assert sessions.new_context(request_for(0, 1, 2, 3), 0.0).session


def test_the_client_that_has_most_sessions_makes_room_for_one_that_has_less() -> None:
    sessions = FetchSessions(4)
    first, *_ = [sessions.new_context(request_for(0), float(n), "hoarder").session for n in range(4)]
    assert first
    assert sessions.new_context(request_for(0), 5.0, "hoarder").session is None, "not for itself"
    assert sessions.new_context(request_for(0, session=first.id, epoch=1), 6.0, "hoarder").session is first
    assert sessions.new_context(request_for(0), 7.0, "one").session
    assert sessions.new_context(request_for(0), 8.0, "two").session
    assert sessions.new_context(request_for(0), 9.0, "three").session
    assert sessions.new_context(request_for(0), 10.0, "four").session is None, "nobody has more than one"
    assert sessions.new_context(request_for(0, session=first.id, epoch=2), 11.0, "hoarder").session is first
    assert len(sessions) == 4


def test_the_client_that_has_most_partitions_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("barnabas.broker.reading.fetch_sessions.MAX_PARTITIONS", 5)
    sessions = FetchSessions(100)
    assert sessions.new_context(request_for(0, 1), 0.0, "hoarder").session
    assert sessions.new_context(request_for(0, 1, 2), 0.0, "hoarder").session
    mine = sessions.new_context(request_for(0), 0.0, "one").session
    assert mine, "in place of the older one"
    assert sessions.new_context(request_for(1, session=mine.id, epoch=1), 1.0, "one").session is mine
    assert len(sessions) == 2


# --- offsets ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("timestamp", "version", "found"),
    [
        pytest.param(-1, 1, (0, 4, -1), id="latest"),
        pytest.param(-2, 1, (0, 0, -1), id="earliest"),
        pytest.param(-3, 7, (0, 2, NOW + 30), id="max timestamp"),
        pytest.param(-3, 6, (35, -1, -1), id="max timestamp before its version"),
        pytest.param(-4, 8, (0, 0, -1), id="earliest local"),
        pytest.param(-5, 9, (0, -1, -1), id="latest tiered"),
        pytest.param(-9, 11, (35, -1, -1), id="no such"),
        pytest.param(0, 1, (0, 0, NOW), id="from the beginning"),
        pytest.param(NOW + 5, 1, (0, 1, NOW + 10), id="inside a batch"),
        pytest.param(NOW + 10, 1, (0, 1, NOW + 10), id="exact"),
        pytest.param(NOW + 31, 1, (0, -1, -1), id="after the end"),
    ],
)
async def test_list_offsets(start: Start, timestamp: int, version: int, found: tuple[int, int, int]) -> None:
    async with start() as broker, await broker.client() as client:
        await client.create_topic("t")
        for times in ((0, 10), (30, 20)):
            records = [Record(b"k", b"v", NOW + time) for time in times]
            await client.produce("t", build_batch(records))
        part = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
        asked = ListOffsetsRequest(topics=[ListOffsetsTopic(name="t", partitions=[part])])
        answer = (await client.ask(asked, version)).topics[0].partitions[0]
        assert (answer.error_code, answer.offset, answer.timestamp) == found


# --- topics and their configuration -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        (CreatableTopic(name="t", num_partitions=1, replication_factor=1), ErrorCode.TOPIC_ALREADY_EXISTS),
        (CreatableTopic(name="a.b", num_partitions=1, replication_factor=1), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (CreatableTopic(name="n", num_partitions=0, replication_factor=1), ErrorCode.INVALID_PARTITIONS),
        (CreatableTopic(name="n", num_partitions=-2, replication_factor=1), ErrorCode.INVALID_PARTITIONS),
        (CreatableTopic(name="n", num_partitions=2**31 - 1, replication_factor=1), ErrorCode.INVALID_PARTITIONS),
        (CreatableTopic(name="n", num_partitions=1, replication_factor=2), ErrorCode.INVALID_REPLICATION_FACTOR),
        (CreatableTopic(name="n", num_partitions=1, replication_factor=0), ErrorCode.INVALID_REPLICATION_FACTOR),
        (
            CreatableTopic(name="n", num_partitions=1, replication_factor=1, configs=[CreatableTopicConfig("no", "1")]),
            ErrorCode.INVALID_CONFIG,
        ),
        (
            CreatableTopic(
                name="n", num_partitions=1, replication_factor=1, configs=[CreatableTopicConfig("retention.ms", "x")]
            ),
            ErrorCode.INVALID_CONFIG,
        ),
        (
            CreatableTopic(
                name="n", num_partitions=1, replication_factor=-1, assignments=[CreatableReplicaAssignment(0, [1])]
            ),
            ErrorCode.INVALID_REQUEST,
        ),
        (
            CreatableTopic(
                name="n", num_partitions=-1, replication_factor=-1, assignments=[CreatableReplicaAssignment(1, [1])]
            ),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ),
        (
            CreatableTopic(
                name="n", num_partitions=-1, replication_factor=-1, assignments=[CreatableReplicaAssignment(0, [2])]
            ),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ),
        (
            CreatableTopic(
                name="n", num_partitions=-1, replication_factor=-1, assignments=[CreatableReplicaAssignment(0, [1])]
            ),
            ErrorCode.NONE,
        ),
        (CreatableTopic(name="n", num_partitions=-1, replication_factor=-1), ErrorCode.NONE),
    ],
)
@pytest.mark.parametrize("validate_only", [True, False])
async def test_create_topics(start: Start, topic: CreatableTopic, code: ErrorCode, validate_only: bool) -> None:
    async with start() as broker, await broker.client() as client:
        await client.create_topic("t")
        await client.create_topic("a_b")
        asked = CreateTopicsRequest(topics=[topic], validate_only=validate_only)
        (answer,) = (await client.ask(asked)).topics
        assert answer.error_code == code, answer.error_message
        assert ("n" in broker.node.metadata.topics) == (code == 0 and not validate_only)


async def test_a_topics_configuration_is_changed_and_described(start: Start) -> None:
    set_, delete, append, subtract = 0, 1, 2, 3

    async def alter(client: Client, name: str, operation: int, value: str | None) -> int:
        change = AlterableConfig(name=name, config_operation=operation, value=value)
        resource = AlterConfigsResource(resource_type=2, resource_name="t", configs=[change])
        answer = await client.ask(IncrementalAlterConfigsRequest(resources=[resource]))
        code: int = answer.responses[0].error_code
        return code

    async def shown(client: Client, name: str) -> tuple[str, int]:
        resource = DescribeConfigsResource(resource_type=2, resource_name="t", configuration_keys=[name])
        (config,) = (await client.ask(DescribeConfigsRequest(resources=[resource]))).results[0].configs
        return config.value, config.config_source

    async with start() as broker, await broker.client() as client:
        await client.create_topic("t")
        assert await shown(client, "cleanup.policy") == ("delete", 5)
        assert await alter(client, "cleanup.policy", append, "compact") == 0
        assert await shown(client, "cleanup.policy") == ("delete,compact", 1)
        assert await alter(client, "cleanup.policy", subtract, "delete") == 0
        assert broker.node.vnodes["t", 0].config.compacts
        assert (await client.produce("t", batch_of(b"x", key=None))).error_code == ErrorCode.INVALID_RECORD
        assert await alter(client, "cleanup.policy", delete, None) == 0
        assert await shown(client, "cleanup.policy") == ("delete", 5)
        for name, operation, value in (
            ("retention.ms", set_, "x"),
            ("retention.ms", append, "1"),
            ("nonsense", set_, "1"),
            ("min.cleanable.dirty.ratio", set_, "nan"),
        ):
            assert await alter(client, name, operation, value) == ErrorCode.INVALID_CONFIG, name
        assert await alter(client, "retention.ms", set_, None) == ErrorCode.INVALID_REQUEST


async def test_a_group_that_is_looked_for_while_its_topic_is_made_has_its_coordinator(start: Start) -> None:
    from barnabas.wire.messages.find_coordinator import FindCoordinatorRequest
    from barnabas.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic

    async with start(offsets_topic_num_partitions="10") as broker:
        codes: list[int] = []

        async def look(number: int) -> None:
            async with await broker.client() as client:
                await client.ask(FindCoordinatorRequest(key=f"g{number}"), 3)
                asked = OffsetFetchRequest(
                    group_id=f"g{number}", topics=[OffsetFetchRequestTopic(name="t", partition_indexes=[0])]
                )
                codes.append((await client.ask(asked, 7)).error_code)

        async with trio.open_nursery() as nursery:
            for number in range(20):
                nursery.start_soon(look, number)
        assert codes == [0] * 20
        assert " error " not in broker.log
