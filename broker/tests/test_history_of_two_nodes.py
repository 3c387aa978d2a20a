"""Producers on two nodes that lose requests and answers to each other, and whose coordinator is unloaded and loaded.

Each value that was reported as committed is in both partitions, once. No other value is visible.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import trio

from barnabas.broker.between.peers import Unreachable
from barnabas.broker.tests.conftest import Start, until
from barnabas.broker.tests.test_nodes import change, moved
from barnabas.broker.tests.test_transactions import committed_values, complete
from barnabas.broker.tests.two_nodes import COORDINATOR, OTHER, Across, Pair, pair
from barnabas.wire.errors import ErrorCode
from barnabas.wire.internal_topics import TRANSACTIONS_TOPIC
from barnabas.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from barnabas.wire.messages.end_txn import EndTxnRequest
from barnabas.wire.messages.init_producer_id import InitProducerIdRequest
from barnabas.wire.types import Message

#: Transactional ids, and whether their producers use version 2.
IDS = {"one": False, "two": True, "three": True}
TRANSACTIONS = 6
AGAIN = (
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_ENOUGH_REPLICAS,
)


async def again(ask: Callable[[], Awaitable[Any]], code_of: Callable[[Any], int]) -> Any:
    """Ask until the answer is not an error that means "try again", and return it."""
    with trio.fail_after(60):
        while code_of(answer := await ask()) in AGAIN:
            await trio.sleep(0.001)
    return answer


class Faults:
    """Requests between nodes are slow, and some get lost, before or after their effect."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.lost = 0

    async def __call__(self, request: Message) -> None:
        await trio.sleep(self.random.random() * 0.003)
        if self.random.random() < 0.15:
            self.lost += 1
            raise Unreachable


class History:
    """What the producers were told."""

    def __init__(self) -> None:
        self.committed: set[bytes] = set()

    async def produce(self, both: Pair, name: str, chance: random.Random) -> None:
        """Run a producer with connections of its own."""
        async with (
            await both.nodes[COORDINATOR].client() as first,
            await both.nodes[OTHER].client() as second,
        ):
            await self._run(Pair(both.wire, first, second).producer(name, is_v2=IDS[name]), chance)

    async def _run(self, producer: Across, chance: random.Random) -> None:
        await self._init(producer)
        for number in range(TRANSACTIONS):
            value = f"{producer.name}-{number}".encode()
            committed = chance.random() < 0.6
            for partition in (0, 1):
                await self._write(producer, partition, value)
            await self._end(producer, committed=committed)
            if committed:
                self.committed.add(value)

    async def _init(self, producer: Across) -> None:
        asked = InitProducerIdRequest(producer.name, 60_000)
        answer = await again(lambda: producer.client.ask(asked, 5), lambda answer: int(answer.error_code))
        assert not answer.error_code
        producer.id, producer.epoch = answer.producer_id, answer.producer_epoch

    async def _write(self, producer: Across, partition: int, value: bytes) -> None:
        if not producer.is_v2:
            topics = [AddPartitionsToTxnTopic("a", [partition])]
            asked = AddPartitionsToTxnRequest([], producer.name, producer.id, producer.epoch, topics)

            def code_of(answer: Any) -> int:
                return int(answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code)

            assert not code_of(await again(lambda: producer.client.ask(asked, 3), code_of))
        for _ in range(2):  # the coordinator is not asked for the second one
            answer = await again(
                lambda: producer.write(value, partition=partition), lambda answer: int(answer.error_code)
            )
            assert not answer.error_code, ErrorCode(answer.error_code)

    async def _end(self, producer: Across, *, committed: bool) -> None:
        asked = EndTxnRequest(producer.name, producer.id, producer.epoch, committed)
        version = 5 if producer.is_v2 else 4
        answer = await again(lambda: producer.client.ask(asked, version), lambda answer: int(answer.error_code))
        assert not answer.error_code, ErrorCode(answer.error_code)
        if producer.is_v2:
            producer.id, producer.epoch = answer.producer_id, answer.producer_epoch
            producer.sequences.clear()


async def reload_coordinator(both: Pair, chance: random.Random) -> None:
    """Each partition in turn gets no leader, and then this node again."""
    first = both.nodes[COORDINATOR]
    topic_id = first.node.metadata.topics[TRANSACTIONS_TOPIC].topic_id
    while True:
        await trio.sleep(chance.random() * 0.2)
        partition = chance.randrange(3)
        with trio.CancelScope(shield=True):
            for leader in (-1, COORDINATOR):
                await change(first, moved(topic_id, partition, leader))


@pytest.mark.parametrize("seed", range(3))
async def test_what_is_told_is_seen(start: Start, tmp_path: Path, seed: int) -> None:
    chance, faults, history = random.Random(seed), Faults(seed), History()
    async with pair(start, tmp_path) as both:
        both.wire.before = both.wire.after = faults
        async with trio.open_nursery() as reloads:
            reloads.start_soon(reload_coordinator, both, chance)
            async with trio.open_nursery() as nursery:
                for name in IDS:
                    nursery.start_soon(history.produce, both, name, chance)
            reloads.cancel_scope.cancel()
        first = both.nodes[COORDINATOR].node
        shards = first.transactions.coordinator.shards.by_partition
        await until(lambda: len(shards) == 3 and all(shard.is_loaded for shard in shards.values()))
        await complete(both.clients[COORDINATOR], *IDS)
        for partition in (0, 1):
            values = await committed_values(both.client_of("a", partition), "a", partition)
            assert sorted(value for value in values if value) == sorted([*history.committed] * 2)
        assert faults.lost > 0
        assert 0 < len(history.committed) < TRANSACTIONS * len(IDS)
