"""Transactions over the wire: which requests are accepted, what consumers see, what survives a restart."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from barnabas.broker.tests.client import Client, batch_of, fetch_request, produce_request
from barnabas.broker.tests.conftest import Running, Start, until
from barnabas.wire.batch import iter_batches, iter_records
from barnabas.wire.errors import ErrorCode
from barnabas.wire.internal_topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from barnabas.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from barnabas.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from barnabas.wire.messages.api_versions import ApiVersionsRequest
from barnabas.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from barnabas.wire.messages.describe_transactions import DescribeTransactionsRequest
from barnabas.wire.messages.end_txn import EndTxnRequest
from barnabas.wire.messages.fetch import FetchRequest
from barnabas.wire.messages.find_coordinator import FindCoordinatorRequest
from barnabas.wire.messages.init_producer_id import InitProducerIdRequest
from barnabas.wire.messages.list_transactions import ListTransactionsRequest
from barnabas.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from barnabas.wire.messages.produce import ProduceRequest
from barnabas.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from barnabas.wire.messages.write_txn_markers import WritableTxnMarker, WritableTxnMarkerTopic, WriteTxnMarkersRequest
from barnabas.wire.types import replace

READ_COMMITTED = 1


class Producer:
    """A transactional producer that uses the request versions of the given kind."""

    def __init__(self, client: Client, name: str = "t", *, is_v2: bool = True) -> None:
        self.client, self.name, self.is_v2 = client, name, is_v2
        self.id = self.epoch = -1
        self.sequence = 0

    async def init(self, timeout_ms: int = 60_000) -> None:
        await self.client.ask(FindCoordinatorRequest(key=self.name, key_type=1), 3)
        with trio.fail_after(60):
            while True:
                answer = await self.client.ask(InitProducerIdRequest(self.name, timeout_ms), 5)
                if answer.error_code not in (ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS):
                    break
        assert not answer.error_code, answer
        self.id, self.epoch, self.sequence = answer.producer_id, answer.producer_epoch, 0

    async def add(self, topic: str = "a", partition: int = 0) -> ErrorCode:
        topics = [AddPartitionsToTxnTopic(topic, [partition])]
        answer = await self.client.ask(AddPartitionsToTxnRequest([], self.name, self.id, self.epoch, topics), 3)
        return ErrorCode(answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code)

    def request(self, value: bytes, topic: str = "a", partition: int = 0) -> ProduceRequest:
        data = batch_of(
            value,
            producer_id=self.id,
            producer_epoch=self.epoch,
            base_sequence=self.sequence,
            is_transactional=True,
        )
        self.sequence += 1
        return replace(produce_request(topic, data, partition), transactional_id=self.name)

    async def write(self, value: bytes, topic: str = "a", partition: int = 0, *, version: int | None = None) -> Any:
        asked = version or (12 if self.is_v2 else 11)
        answer = await self.client.ask(self.request(value, topic, partition), asked)
        return answer.responses[0].partition_responses[0]

    async def offset(self, offset: int, group: str = "g", *, version: int | None = None, **member: Any) -> ErrorCode:
        topics = [TxnOffsetCommitRequestTopic("a", [TxnOffsetCommitRequestPartition(0, offset)])]
        asked = TxnOffsetCommitRequest(self.name, group, self.id, self.epoch, topics=topics, **member)
        answer = await self.client.ask(asked, version or (5 if self.is_v2 else 4))
        return ErrorCode(answer.topics[0].partitions[0].error_code)

    async def end(self, *, committed: bool = True) -> ErrorCode:
        version = 5 if self.is_v2 else 4
        answer = await self.client.ask(EndTxnRequest(self.name, self.id, self.epoch, committed), version)
        if self.is_v2 and not answer.error_code:
            self.id, self.epoch, self.sequence = answer.producer_id, answer.producer_epoch, 0
        return ErrorCode(answer.error_code)


async def committed_values(client: Client, topic: str = "a", partition: int = 0) -> list[bytes | None]:
    """The values that a read_committed consumer sees, from start to end."""
    found: list[bytes | None] = []
    offset = 0
    while True:
        asked: FetchRequest = replace(fetch_request(topic, offset, partition), isolation_level=READ_COMMITTED)
        answer = (await client.ask(asked, 12)).responses[0].partitions[0]
        assert not answer.error_code
        if not answer.records:
            return found
        aborted = [(each.producer_id, each.first_offset) for each in answer.aborted_transactions or ()]
        skipped: set[int] = set()
        for header, view in iter_batches(answer.records):
            offset = header.last_offset + 1
            skipped |= {producer for producer, first in aborted if first <= header.last_offset}
            aborted = [each for each in aborted if each[1] > header.last_offset]
            if header.is_control:
                skipped.discard(header.producer_id)
            elif not header.is_transactional or header.producer_id not in skipped:
                found += [record.value for record in iter_records(view)]


async def complete(client: Client, *names: str) -> None:
    """Wait until the transactions of these ids have ended."""
    with trio.fail_after(60):
        while True:
            states = (await client.ask(DescribeTransactionsRequest(list(names)))).transaction_states
            if all(state.transaction_state.startswith("Complete") for state in states):
                return


async def committed_offset(client: Client, *, stable: bool = True, group: str = "g") -> tuple[int, int]:
    """The committed offset of partition 0, and the error code."""
    topics = [OffsetFetchRequestTopics(name="a", partition_indexes=[0])]
    asked = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group, topics=topics)], require_stable=stable)
    place = (await client.ask(asked, 9)).groups[0].topics[0].partitions[0]
    return place.committed_offset, place.error_code


@pytest.mark.parametrize("is_v2", [False, True], ids=["version 1", "version 2"])
async def test_what_is_committed_is_seen_and_what_is_aborted_is_not(start: Start, is_v2: bool) -> None:
    async with start() as broker, await broker.client() as client:
        await client.create_topic("a", 2)
        producer = Producer(client, is_v2=is_v2)
        await producer.init()
        for committed, value in ((True, b"1"), (False, b"2"), (True, b"3")):
            for partition in (0, 1):
                if not is_v2:
                    assert await producer.add(partition=partition) == ErrorCode.NONE
                producer.sequence = 0 if is_v2 else int(value) - 1
                assert (await producer.write(value, partition=partition)).error_code == 0
                assert value not in await committed_values(client, partition=partition)
            assert await producer.end(committed=committed) == ErrorCode.NONE
            await complete(client, "t")
        for partition in (0, 1):
            assert await committed_values(client, partition=partition) == [b"1", b"3"]


async def test_a_batch_outside_a_transaction_is_refused(start: Start) -> None:
    async with start() as broker, await broker.client() as client:
        await client.create_topic("a")
        producer = Producer(client, is_v2=False)
        await producer.init()
        assert (await producer.write(b"1", version=10)).error_code == ErrorCode.INVALID_TXN_STATE
        assert (await producer.write(b"1", version=11)).error_code == ErrorCode.TRANSACTION_ABORTABLE
        epoch, producer.epoch = producer.epoch, 7
        for version in (10, 11, 12, 13):
            name = broker.node.metadata.topics["a"].topic_id
            request = producer.request(b"1")
            if version == 13:
                request.topic_data[0] = replace(request.topic_data[0], topic_id=name)
            answer = (await client.ask(request, version)).responses[0].partition_responses[0]
            assert answer.error_code == ErrorCode.INVALID_PRODUCER_EPOCH
        producer.epoch, producer.name = epoch, "other"
        for version in (11, 12):
            assert (await producer.write(b"1", version=version)).error_code == ErrorCode.INVALID_PRODUCER_ID_MAPPING
        data = batch_of(b"1", producer_id=producer.id, producer_epoch=0, base_sequence=0, is_transactional=True)
        answer = await client.produce("a", data, version=12)
        assert answer.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        assert await committed_values(client) == []


async def test_a_transaction_begins_with_sequence_0_in_each_partition(start: Start) -> None:
    """Any sequence is accepted from an unknown producer, unless its epochs grow with each transaction."""
    async with start() as running, await running.client() as client:
        await client.create_topic("a")
        producer = Producer(client)
        await producer.init()
        producer.sequence = 1
        assert (await producer.write(b"1")).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        producer.sequence = 0
        assert (await producer.write(b"0")).base_offset == 0
        assert (await producer.write(b"1")).base_offset == 1
        producer.sequence = 0
        assert (await producer.write(b"0")).base_offset == 0, "repeated: it has the offset that it had"
        assert await producer.end() == ErrorCode.NONE
        await complete(client, "t")
        assert await committed_values(client) == [b"0", b"1"]
        older = Producer(client, "old", is_v2=False)
        await older.init()
        await older.add()
        older.sequence = 5
        assert not (await older.write(b"5")).error_code


async def test_verification_can_be_switched_off(start: Start) -> None:
    async with (
        start(transaction_partition_verification_enable="false") as broker,
        await broker.client() as client,
    ):
        await client.create_topic("a")
        producer = Producer(client, is_v2=False)
        await producer.init()
        assert (await producer.write(b"1")).error_code == 0


async def test_requests_sent_ahead_take_effect_in_their_order(start: Start) -> None:
    """A batch waits until its partition is in the transaction, and later requests wait for the batch."""
    async with start() as broker, await broker.client() as client:
        await client.create_topic("a")
        producer = Producer(client)
        await producer.init()
        for number in range(5):
            await client.send(producer.request(b"%d" % number), 12)
        await client.send(EndTxnRequest("t", producer.id, producer.epoch, True), 5)
        for number in range(5):
            answer = (await client.receive()).responses[0].partition_responses[0]
            assert (answer.error_code, answer.base_offset) == (0, number)
        assert (await client.receive()).error_code == 0
        await complete(client, "t")
        assert await committed_values(client) == [b"%d" % number for number in range(5)]


async def test_the_next_transaction_begins_before_the_one_before_is_complete(start: Start) -> None:
    async with start() as broker, await broker.client() as client:
        await client.create_topic("a")
        producer = Producer(client)
        await producer.init()
        for number in range(20):
            assert (await producer.write(b"%d" % number)).error_code == 0
            assert await producer.end() == ErrorCode.NONE
        await complete(client, "t")
        assert await committed_values(client) == [b"%d" % number for number in range(20)]
        assert producer.epoch == 20


async def test_a_new_producer_fences_the_old_one(start: Start) -> None:
    async with start() as broker, await broker.client() as client, await broker.client() as other:
        await client.create_topic("a")
        old, new = Producer(client), Producer(other)
        await old.init()
        assert (await old.write(b"old")).error_code == 0
        await new.init()
        assert (await old.write(b"zombie")).error_code == ErrorCode.INVALID_PRODUCER_EPOCH
        assert await old.end() == ErrorCode.PRODUCER_FENCED
        assert (await new.write(b"new")).error_code == 0
        assert await new.end() == ErrorCode.NONE
        await complete(client, "t")
        assert await committed_values(client) == [b"new"]


@pytest.mark.parametrize("is_v2", [False, True], ids=["version 1", "version 2"])
async def test_offsets_count_when_they_are_committed(start: Start, is_v2: bool) -> None:
    async with start() as broker, await broker.client() as client:
        await client.create_topic("a")
        await client.ask(FindCoordinatorRequest(key="g"), 3)
        producer = Producer(client, is_v2=is_v2)
        await producer.init()
        if not is_v2:
            assert await producer.offset(5) == ErrorCode.TRANSACTION_ABORTABLE
            assert await producer.offset(5, version=3) == ErrorCode.INVALID_TXN_STATE
        for offset, committed, then in ((5, True, 5), (6, False, 5), (7, True, 7)):
            if not is_v2:
                asked = AddOffsetsToTxnRequest("t", producer.id, producer.epoch, "g")
                assert (await client.ask(asked)).error_code == 0
            assert await producer.offset(offset) == ErrorCode.NONE
            assert await committed_offset(client) == (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
            assert await producer.end(committed=committed) == ErrorCode.NONE
            await complete(client, "t")
            assert await committed_offset(client) == (then, ErrorCode.NONE)
        assert await producer.offset(8) == (ErrorCode.NONE if is_v2 else ErrorCode.TRANSACTION_ABORTABLE)
        assert await committed_offset(client, stable=False) == (7, ErrorCode.NONE)


async def test_offsets_are_refused_for_a_member_that_is_not_there(start: Start) -> None:
    async with start() as broker, await broker.client() as client:
        await client.create_topic("a")
        await client.ask(FindCoordinatorRequest(key="g"), 3)
        producer = Producer(client)
        await producer.init()
        assert await producer.offset(1, generation_id=3, member_id="dead") == ErrorCode.ILLEGAL_GENERATION
        assert await producer.offset(1) == ErrorCode.NONE
        assert await producer.offset(1, generation_id=3, member_id="dead") == ErrorCode.UNKNOWN_MEMBER_ID
        assert await producer.offset(1, group="") == ErrorCode.INVALID_GROUP_ID
        producer.epoch += 1
        assert await producer.offset(1) == ErrorCode.INVALID_PRODUCER_EPOCH


async def killed(broker: Running) -> None:
    """Stop the broker now: the next start finds the present data directory."""
    broker.node.stop()
    await broker.node.stopped.wait()


async def test_an_open_transaction_outlives_a_restart(start: Start) -> None:
    async with start() as broker, await broker.client() as client:
        await client.create_topic("a")
        await client.ask(FindCoordinatorRequest(key="g"), 3)
        producer = Producer(client)
        await producer.init()
        assert (await producer.write(b"before")).error_code == 0
        assert await producer.offset(9) == ErrorCode.NONE
    async with start() as broker, await broker.client() as producer.client:
        client = producer.client
        await until(lambda: all(s.is_loaded for s in broker.node.transactions.coordinator.shards.by_partition.values()))
        await until(lambda: broker.node.groups.all_loaded)
        assert await committed_offset(client) == (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
        assert (await producer.write(b"after")).error_code == 0
        assert await producer.end() == ErrorCode.NONE
        await complete(client, "t")
        assert await committed_values(client) == [b"before", b"after"]
        assert await committed_offset(client) == (9, ErrorCode.NONE)


async def test_what_was_decided_is_completed_after_a_restart(start: Start) -> None:
    """The broker dies after the decision: no marker is written, neither for data nor for offsets."""
    async with start() as broker, await broker.client() as client:
        await client.create_topic("a")
        await client.ask(FindCoordinatorRequest(key="g"), 3)
        producer = Producer(client)
        await producer.init()
        assert (await producer.write(b"1")).error_code == 0
        assert await producer.offset(4) == ErrorCode.NONE
        broker.node.transactions.markers.write = lambda *a, **k: None  # type: ignore[method-assign]
        assert await producer.end() == ErrorCode.NONE
        states = (await client.ask(DescribeTransactionsRequest(["t"]))).transaction_states
        assert states[0].transaction_state == "PrepareCommit"
        assert await committed_values(client) == []
    async with start() as broker, await broker.client() as client:
        await until(lambda: all(s.is_loaded for s in broker.node.transactions.coordinator.shards.by_partition.values()))
        await until(lambda: broker.node.groups.all_loaded)
        await complete(client, "t")
        assert await committed_values(client) == [b"1"]
        assert await committed_offset(client) == (4, ErrorCode.NONE)


async def test_a_transaction_that_takes_too_long_is_aborted(start: Start) -> None:
    async with start() as broker, await broker.client() as client:
        await client.create_topic("a")
        producer = Producer(client)
        await producer.init(timeout_ms=50)
        assert (await producer.write(b"1")).error_code == 0
        await complete(client, "t")
        assert (await producer.write(b"2")).error_code == ErrorCode.INVALID_PRODUCER_EPOCH
        assert await committed_values(client) == []
        assert (await client.produce("a", batch_of(b"plain"))).error_code == 0
        assert await committed_values(client) == [b"plain"]


async def test_a_topic_that_is_deleted_does_not_hold_its_transaction(start: Start) -> None:
    async with start() as broker, await broker.client() as client:
        await client.create_topic("a")
        await client.create_topic("gone")
        producer = Producer(client)
        await producer.init()
        for topic in ("a", "gone"):
            producer.sequence = 0
            assert (await producer.write(b"1", topic)).error_code == 0
        await client.ask(DeleteTopicsRequest(topics=[DeleteTopicState("gone")]))
        assert await producer.end() == ErrorCode.NONE
        await complete(client, "t")
        assert await committed_values(client) == [b"1"]


async def test_an_operator_ends_a_hanging_transaction(start: Start) -> None:
    """A partition has it open and the coordinator does not know it, which an old broker may leave behind."""
    async with start(transaction_partition_verification_enable="false") as broker, await broker.client() as client:
        await client.create_topic("a")
        producer = Producer(client, is_v2=False)
        await producer.init()
        assert (await producer.write(b"hanging")).error_code == 0
        assert (await client.produce("a", batch_of(b"held"))).error_code == 0
        assert await committed_values(client) == []

        async def abort(topic: str, epoch: int, version: int) -> int:
            marker = WritableTxnMarker(producer.id, epoch, False, [WritableTxnMarkerTopic(topic, [0])], 0, 0)
            answer = await client.ask(WriteTxnMarkersRequest([marker]), version)
            return int(answer.markers[0].topics[0].partitions[0].error_code)

        assert await abort("absent", producer.epoch, 2) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await abort("a", producer.epoch - 1, 1) == ErrorCode.INVALID_PRODUCER_EPOCH
        assert await committed_values(client) == []
        assert await abort("a", producer.epoch, 1) == ErrorCode.NONE
        assert await committed_values(client) == [b"held"]


async def test_coordinators_are_found_and_features_told(start: Start) -> None:
    async with start() as broker, await broker.client() as client:
        assert TRANSACTIONS_TOPIC not in broker.node.metadata.topics
        found = await client.ask(FindCoordinatorRequest(key_type=1, coordinator_keys=["x", "y"]), 4)
        assert [(each.error_code, each.node_id) for each in found.coordinators] == [(0, 1), (0, 1)]
        topic = broker.node.metadata.topics[TRANSACTIONS_TOPIC]
        assert (len(topic.partitions), topic.configs["cleanup.policy"]) == (50, "compact")
        assert OFFSETS_TOPIC not in broker.node.metadata.topics
        told = await client.ask(ApiVersionsRequest("test", "1"), 4)
        features = {each.name: (each.min_version, each.max_version) for each in told.supported_features}
        assert features["transaction.version"] == (0, 2)
        old = await client.ask(ApiVersionsRequest("test", "1"), 3)
        assert "transaction.version" not in {each.name for each in old.supported_features}, "a client of old fails at 0"
        for answer in (told, old):
            final = {each.name: each.max_version_level for each in answer.finalized_features}
            assert final["transaction.version"] == 2


async def test_a_deleted_state_topic_forgets_all_ids(start: Start) -> None:
    async with start() as broker, await broker.client() as client:
        producer = Producer(client)
        await producer.init()
        await client.ask(DeleteTopicsRequest(topics=[DeleteTopicState(TRANSACTIONS_TOPIC)]))
        answer = await client.ask(InitProducerIdRequest("t", 1000), 5)
        assert answer.error_code == ErrorCode.NOT_COORDINATOR
        await producer.init()
        assert producer.epoch == 0
        assert len((await client.ask(ListTransactionsRequest())).transaction_states) == 1
