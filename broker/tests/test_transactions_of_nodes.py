"""Transactions whose coordinator, partitions and groups are on different nodes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import trio

from barnabas.broker.tests.client import batch_of
from barnabas.broker.tests.conftest import Start, until
from barnabas.broker.tests.test_nodes import change, moved
from barnabas.broker.tests.test_transactions import committed_offset, committed_values, complete
from barnabas.broker.tests.two_nodes import COORDINATOR, OTHER, Pair, pair
from barnabas.wire.errors import ErrorCode, KafkaError
from barnabas.wire.internal_topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from barnabas.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from barnabas.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from barnabas.wire.messages.end_txn import EndTxnRequest
from barnabas.wire.messages.find_coordinator import FindCoordinatorRequest
from barnabas.wire.messages.init_producer_id import InitProducerIdRequest
from barnabas.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from barnabas.wire.queries.writer import WRITER_ID
from barnabas.wire.types import Message

VERSIONS = pytest.mark.parametrize("is_v2", [False, True], ids=["version 1", "version 2"])


async def seen(both: Pair) -> list[list[bytes | None]]:
    """The values that read_committed consumers see in both partitions."""
    return [await committed_values(both.client_of("a", at), "a", at) for at in (0, 1)]


@VERSIONS
@pytest.mark.parametrize("committed", [True, False], ids=["commit", "abort"])
async def test_a_transaction_over_two_nodes(start: Start, tmp_path: Path, is_v2: bool, committed: bool) -> None:
    async with pair(start, tmp_path) as both:
        producer = both.producer(is_v2=is_v2)
        await producer.init()
        for number in range(3):
            await producer.begin(("a", 0), ("a", 1))
            for partition in (0, 1, 1):
                answer = await producer.write(b"%d" % number, partition=partition)
                assert answer.error_code == 0, ErrorCode(answer.error_code)
            if not is_v2:
                asked = AddOffsetsToTxnRequest(producer.name, producer.id, producer.epoch, "g")
                assert (await both.clients[COORDINATOR].ask(asked, 3)).error_code == 0
            assert await producer.offset(number + 1) == 0
            assert (await committed_offset(both.clients[OTHER]))[1] == ErrorCode.UNSTABLE_OFFSET_COMMIT
            assert await producer.end(committed=committed) == 0
            await complete(both.clients[COORDINATOR], "t")
            expected = [b"%d" % each for each in range(number + 1)] if committed else []
            assert await seen(both) == [expected, [each for each in expected for _ in range(2)]]
            assert await committed_offset(both.clients[OTHER]) == (number + 1 if committed else -1, 0)
        # Once for each transaction in partition 1, and once for its group's offsets. Markers are sent together.
        assert both.wire.count(AddPartitionsToTxnRequest) == 6
        assert both.wire.count(WriteTxnMarkersRequest) <= 6


async def test_a_batch_outside_a_transaction_is_refused(start: Start, tmp_path: Path) -> None:
    async with pair(start, tmp_path) as both:
        producer = both.producer(is_v2=False)
        await producer.init()
        assert (await producer.write(b"no", partition=1)).error_code == ErrorCode.TRANSACTION_ABORTABLE
        assert (await producer.write(b"no", partition=1, version=10)).error_code == ErrorCode.INVALID_TXN_STATE
        producer.epoch += 1
        assert (await producer.write(b"no", partition=1, version=12)).error_code == ErrorCode.INVALID_PRODUCER_EPOCH
        producer.name = "u"
        assert (await producer.write(b"no", partition=1)).error_code == ErrorCode.INVALID_PRODUCER_ID_MAPPING
        assert (await both.client_of("a", 1).produce("a", batch_of(b"plain"), 1)).error_code == 0
        assert await seen(both) == [[], [b"plain"]]


async def test_verification_can_be_switched_off(start: Start, tmp_path: Path) -> None:
    async with pair(start, tmp_path, transaction_partition_verification_enable="false") as both:
        producer = both.producer(is_v2=False)
        await producer.init()
        assert (await producer.write(b"taken", partition=1)).error_code == 0
        assert both.wire.count(AddPartitionsToTxnRequest) == 0


@VERSIONS
async def test_a_transaction_that_ends_while_it_is_verified_is_not_begun_again(
    start: Start, tmp_path: Path, is_v2: bool
) -> None:
    """The coordinator says that the partition belongs to the transaction; its marker is written before that arrives."""
    async with pair(start, tmp_path, add_partitions_to_txn_retry_backoff_max_ms="0") as both:
        producer = both.producer(is_v2=is_v2)
        await producer.init()
        await producer.begin(("a", 1))

        async def end_first(request: Message) -> None:
            if isinstance(request, AddPartitionsToTxnRequest):
                both.wire.after = None
                version = 5 if is_v2 else 4
                ended = EndTxnRequest(producer.name, producer.id, producer.epoch, False)
                assert (await both.clients[COORDINATOR].ask(ended, version)).error_code == 0
                await complete(both.clients[COORDINATOR], "t")

        both.wire.after = end_first
        assert (await producer.write(b"late", partition=1)).error_code == ErrorCode.NOT_ENOUGH_REPLICAS
        assert (await both.client_of("a", 1).produce("a", batch_of(b"plain"), 1)).error_code == 0
        assert (await seen(both))[1] == [b"plain"]
        told = (await producer.write(b"late", partition=1)).error_code
        assert told == (ErrorCode.INVALID_PRODUCER_EPOCH if is_v2 else ErrorCode.TRANSACTION_ABORTABLE)


async def test_offsets_of_a_transaction_that_ends_while_it_is_verified_are_refused(
    start: Start, tmp_path: Path
) -> None:
    async with pair(start, tmp_path, add_partitions_to_txn_retry_backoff_max_ms="0") as both:
        producer = both.producer()
        await producer.init()

        async def end_first(request: Message) -> None:
            if isinstance(request, AddPartitionsToTxnRequest):
                both.wire.after = None
                ended = EndTxnRequest(producer.name, producer.id, producer.epoch, False)
                assert (await both.clients[COORDINATOR].ask(ended, 5)).error_code == 0
                await complete(both.clients[COORDINATOR], "t")

        both.wire.after = end_first
        assert await producer.offset(5) == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert await committed_offset(both.clients[OTHER]) == (-1, 0)


async def test_the_next_transaction_begins_before_the_one_before_is_complete(start: Start, tmp_path: Path) -> None:
    async with pair(start, tmp_path, add_partitions_to_txn_retry_backoff_max_ms="10000") as both:
        producer = both.producer()
        await producer.init()
        markers, asked_early = trio.Event(), trio.Event()

        async def hold(request: Message) -> None:
            if isinstance(request, WriteTxnMarkersRequest):
                await markers.wait()

        async def let_go(request: Message) -> None:
            if isinstance(request, AddPartitionsToTxnRequest) and asked_early.is_set():
                markers.set()

        both.wire.before, both.wire.after = hold, let_go
        assert (await producer.write(b"1", partition=1)).error_code == 0
        assert await producer.end() == 0
        asked_early.set()
        assert (await producer.write(b"2", partition=1)).error_code == 0
        assert await producer.end() == 0
        await complete(both.clients[COORDINATOR], "t")
        assert await seen(both) == [[], [b"1", b"2"]]


async def test_a_node_that_is_down_gets_its_markers_when_it_is_back(start: Start, tmp_path: Path) -> None:
    async with pair(start, tmp_path) as both:
        producer = both.producer()
        await producer.init()
        assert (await producer.write(b"1", partition=0)).error_code == 0
        assert (await producer.write(b"1", partition=1)).error_code == 0
        both.wire.down.add(OTHER)
        assert await producer.end() == 0
        here = both.nodes[COORDINATOR].node.vnodes["a", 0]
        await until(lambda: here.last_stable_offset == 2 and both.wire.count(WriteTxnMarkersRequest) > 1)
        assert await seen(both) == [[b"1"], []]
        assert both.nodes[COORDINATOR].log.count("no marker") == 0
        both.wire.down.clear()
        await complete(both.clients[COORDINATOR], "t")
        assert await seen(both) == [[b"1"], [b"1"]]


async def test_a_coordinator_that_is_down_lets_its_producers_come_again(start: Start, tmp_path: Path) -> None:
    async with pair(start, tmp_path) as both:
        producer = both.producer()
        await producer.init()
        both.wire.down.add(COORDINATOR)
        assert (await producer.write(b"1", partition=1)).error_code == ErrorCode.NOT_ENOUGH_REPLICAS
        assert await producer.offset(1) == ErrorCode.COORDINATOR_NOT_AVAILABLE
        both.wire.down.clear()
        assert (await producer.write(b"1", partition=1)).error_code == 0
        assert await producer.end() == 0
        await complete(both.clients[COORDINATOR], "t")
        assert await seen(both) == [[], [b"1"]]


async def test_requests_sent_ahead_take_effect_in_their_order(start: Start, tmp_path: Path) -> None:
    """Later requests on the connection wait for the batch that is being verified."""
    async with pair(start, tmp_path) as both:
        producer = both.producer()
        await producer.init()
        client = both.client_of("a", 1)
        for value in (b"1", b"2", b"3"):
            await client.send(producer.request(value, "a", 1), 12)
        for at in range(3):
            assert (await client.receive()).responses[0].partition_responses[0].base_offset == at
        assert both.wire.count(AddPartitionsToTxnRequest) == 1


async def test_nothing_stays_of_producers_that_nobody_knows(start: Start, tmp_path: Path) -> None:
    async with pair(start, tmp_path) as both:
        client = both.client_of("a", 1)
        producer = both.producer()
        for each in range(300):
            producer.id, producer.epoch, producer.sequence = 10_000 + each, 0, 0
            await client.send(producer.request(b"x", "a", 1), 12 if each % 2 else 11)
        for _ in range(300):
            (answer,) = (await client.receive()).responses[0].partition_responses
            assert answer.error_code == ErrorCode.INVALID_PRODUCER_ID_MAPPING
        node = both.nodes[OTHER].node
        vnode = node.vnodes["a", 1]
        assert len(vnode.producers.verifications) == 0  # type: ignore[attr-defined]
        elsewhere = node.transactions.elsewhere
        assert elsewhere is not None
        assert (elsewhere._shares.used, elsewhere._waiting) == (0, {})


async def test_a_node_is_told_that_a_marker_came_too_late_to_matter_and_an_operator_is_not(
    start: Start, tmp_path: Path
) -> None:
    async with pair(start, tmp_path) as both:
        producer = both.producer()
        await producer.init()
        assert (await producer.write(b"1", partition=1)).error_code == 0
        assert await producer.end() == 0
        await complete(both.clients[COORDINATOR], "t")
        late = WritableTxnMarker(producer.id, producer.epoch - 1, True, [WritableTxnMarkerTopic("a", [1])], 0, 2)
        asked = WriteTxnMarkersRequest([late])
        (told,) = (await both.wire.ask(OTHER, asked)).markers[0].topics[0].partitions
        assert told.error_code == ErrorCode.NONE
        (told,) = (await both.clients[OTHER].ask(asked)).markers[0].topics[0].partitions
        assert told.error_code == ErrorCode.INVALID_PRODUCER_EPOCH
        assert (await producer.write(b"2", partition=1)).error_code == 0
        (told,) = (await both.wire.ask(OTHER, asked)).markers[0].topics[0].partitions
        assert told.error_code == ErrorCode.INVALID_PRODUCER_EPOCH


async def test_a_node_asks_for_many_transactions_in_pieces(start: Start) -> None:
    """More than the number of elements up to which a request is handled in one piece."""
    async with start(transaction_state_log_num_partitions="3") as broker, await broker.client() as client:
        await client.create_topic("a")
        await client.ask(FindCoordinatorRequest(key_type=1, coordinator_keys=["t"]))
        topics = [AddPartitionsToTxnTopic("a", [0])]
        names = [f"{number}{'long' if number % 7 else 'long' * 500}" for number in range(3_000)]
        for verify_only in (True, False):
            asked = [AddPartitionsToTxnTransaction(name, 5, 0, verify_only, topics) for name in names]
            answer = await client.ask(AddPartitionsToTxnRequest(asked), 5)
            assert [each.transactional_id for each in answer.results_by_transaction] == names
            codes = {
                each.topic_results[0].results_by_partition[0].partition_error_code
                for each in answer.results_by_transaction
            }
            assert codes == {ErrorCode.INVALID_PRODUCER_ID_MAPPING}


async def test_only_a_node_names_ids_of_the_streams_driver_and_the_partitions_of_groups(
    start: Start, tmp_path: Path
) -> None:
    async with pair(start, tmp_path) as both:
        producer = both.producer()
        await producer.init()

        async def told(ask: Callable[..., Awaitable[Any]], name: str, topic: str) -> tuple[int, int]:
            transaction = AddPartitionsToTxnTransaction(
                name, producer.id, producer.epoch, False, [AddPartitionsToTxnTopic(topic, [0])]
            )
            answer = await ask(AddPartitionsToTxnRequest([transaction]), 5)
            (result,) = answer.results_by_transaction or [None]
            code = 0 if result is None else result.topic_results[0].results_by_partition[0].partition_error_code
            return answer.error_code, code

        client = both.clients[COORDINATOR].ask

        async def node(request: Message, version: int) -> Any:
            return await both.wire.ask(COORDINATOR, request, version)

        of_driver = f"{WRITER_ID}/stream"
        assert await told(client, of_driver, "a") == (ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, 0)
        assert (await told(node, of_driver, "a"))[0] == 0
        assert await told(client, "t", OFFSETS_TOPIC) == (0, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        assert await told(node, "t", TRANSACTIONS_TOPIC) == (0, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        assert await told(node, "t", OFFSETS_TOPIC) == (0, 0)


async def test_what_moves_while_its_coordinator_is_asked(start: Start, tmp_path: Path) -> None:
    """The partition moves to the other node and back, with a new log: the verification was for the log before."""
    async with pair(start, tmp_path, add_partitions_to_txn_retry_backoff_max_ms="0") as both:
        producer = both.producer()
        await producer.init()

        async def move(request: Message) -> None:
            if isinstance(request, AddPartitionsToTxnRequest):
                both.wire.after = None
                for node in (COORDINATOR, OTHER):
                    await both.lead("a", 1, node)

        both.wire.after = move
        assert (await producer.write(b"1", partition=1)).error_code in (0, ErrorCode.NOT_ENOUGH_REPLICAS)
        producer.sequences.clear()
        assert (await producer.write(b"1", partition=1)).error_code == 0
        assert await producer.end() == 0
        await complete(both.clients[COORDINATOR], "t")
        assert await seen(both) == [[], [b"1"]]


@VERSIONS
async def test_a_coordinator_that_moves_completes_what_is_decided(start: Start, tmp_path: Path, is_v2: bool) -> None:
    """The marker waits for a node that is down. Meanwhile the coordinator's partition is unloaded and loaded again."""
    async with pair(start, tmp_path) as both:
        producer = both.producer(is_v2=is_v2)
        await producer.init()
        await producer.begin(("a", 1))
        assert (await producer.write(b"1", partition=1)).error_code == 0
        both.wire.down.add(OTHER)
        assert await producer.end() == 0
        node = both.nodes[COORDINATOR].node
        home = node.transactions.coordinator.partition_of("t")
        for leader in (-1, COORDINATOR):
            image = node.metadata.topics[TRANSACTIONS_TOPIC]
            await change(both.nodes[COORDINATOR], moved(image.topic_id, home, leader))
        both.wire.down.clear()
        shards = node.transactions.coordinator.shards.by_partition
        await until(lambda: home in shards and shards[home].is_loaded)
        await complete(both.clients[COORDINATOR], "t")
        assert await seen(both) == [[], [b"1"]]


async def test_offsets_are_added_to_the_partition_that_the_topic_says(start: Start) -> None:
    """A client asks this before it looks for the group's coordinator, which creates the topic."""
    async with start(offsets_topic_num_partitions="7") as broker, await broker.client() as client:
        await client.ask(InitProducerIdRequest("other", 1000), 5)
        assert "__consumer_offsets" not in broker.node.metadata.topics
        with pytest.raises(KafkaError) as caught:
            broker.node.groups.partition_of("g")
        assert caught.value.code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        asked = AddOffsetsToTxnRequest("t", 5, 0, "g")
        assert (await client.ask(asked, 3)).error_code != ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert len(broker.node.metadata.topics["__consumer_offsets"].partitions) == 7
