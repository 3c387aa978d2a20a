"""Offsets of partitions on all nodes: those led here are looked up, and the leaders of the others are asked.

No caller may hold a lock while it waits: a node that is down comes back within a second, or is killed after ten.
"""

from __future__ import annotations

from collections.abc import Iterable

import trio

from barnabas.broker.between.peers import Peers, Unreachable
from barnabas.broker.partitions import NOBODY, Partitions
from barnabas.broker.reading.time_lookup import find_time
from barnabas.broker.workers import NOBODY as NO_CLIENT
from barnabas.broker.workers import Workers
from barnabas.storage.vnode import Vnode
from barnabas.wire.aliases import TopicPartition
from barnabas.wire.errors import ErrorCode, KafkaError
from barnabas.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic

LATEST, EARLIEST = -1, -2
#: The log end offset, which consumers must not see yet. Nodes ask each other for it, as Kafka's replicas do.
LOG_END = -100
#: How long to wait for a leader that is down.
PATIENCE_SECONDS = 30.0
# The most partitions in one request, where there may be very many.
_AT_ONCE = 500
_FIRST_PAUSE_SECONDS, _LAST_PAUSE_SECONDS = 0.02, 0.5
# Codes that mean that another node leads the partition, or soon will.
_AGAIN = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.LEADER_NOT_AVAILABLE)


class Offsets:
    """Finds offsets on all nodes."""

    def __init__(self, partitions: Partitions, workers: Workers) -> None:
        self._partitions, self._workers = partitions, workers
        #: The other nodes; None if there are none.
        self.peers: Peers | None = None

    async def find(self, places: Iterable[TopicPartition], asked: int) -> dict[TopicPartition, int]:
        """For each partition, the `EARLIEST`, `LATEST` or `LOG_END` offset; for a time, the offset of the first record
        at or after it, or the latest offset if there is none.

        Raises KafkaError: UNKNOWN_TOPIC_OR_PARTITION, REQUEST_TIMED_OUT if a leader stays down.
        """
        found: dict[TopicPartition, int] = {}
        problems: list[KafkaError] = []
        left = list(places)
        until, pause = trio.current_time() + PATIENCE_SECONDS, _FIRST_PAUSE_SECONDS
        while True:
            elsewhere: dict[int, list[TopicPartition]] = {}
            for at in left:
                leader = self._partitions.leader(*at)
                if self.peers is not None and leader is not None and leader.node != self._partitions.node_id:
                    elsewhere.setdefault(leader.node, []).append(at)
                else:
                    found[at] = await self._look(self._partitions.led(*at), asked)
            if not elsewhere:
                return found
            with trio.move_on_at(until):
                async with trio.open_nursery() as nursery:
                    for node, those in elsewhere.items():
                        if node != NOBODY:
                            nursery.start_soon(self._ask, node, those, asked, found, problems)
            if problems:
                raise problems[0]
            left = [at for at in left if at not in found]
            if not left:
                return found
            if trio.current_time() + pause > until:
                raise self._away(left[0])
            await trio.sleep(pause)
            pause = min(2 * pause, _LAST_PAUSE_SECONDS)

    async def ends_elsewhere(self, places: Iterable[TopicPartition], seconds: float) -> dict[TopicPartition, int]:
        """The high watermarks of partitions that other nodes lead, as far as these answer in time."""
        found: dict[TopicPartition, int] = {}
        by_node: dict[int, list[TopicPartition]] = {}
        for at in places:
            node = self._partitions.elsewhere(*at)
            if self.peers is not None and node is not None:
                by_node.setdefault(node, []).append(at)
        if by_node:
            with trio.move_on_after(seconds):
                async with trio.open_nursery() as nursery:
                    for node, those in by_node.items():
                        for start in range(0, len(those), _AT_ONCE):
                            nursery.start_soon(self._ask, node, those[start : start + _AT_ONCE], LATEST, found, [])
        return found

    def _away(self, at: TopicPartition) -> KafkaError:
        leader = self._partitions.leader(*at)
        who = "No node" if leader is None or leader.node == NOBODY else f"Node {leader.node}"
        why = f"{who}, which should lead {at[0]}-{at[1]}, does not answer: try again when all nodes serve."
        return KafkaError(ErrorCode.REQUEST_TIMED_OUT, why)

    async def _look(self, vnode: Vnode, asked: int) -> int:
        if asked == EARLIEST:
            return vnode.log_start_offset
        if asked == LATEST:
            return vnode.high_watermark
        if asked == LOG_END:
            return vnode.log_end_offset
        at = await find_time(self._workers, NO_CLIENT, vnode, asked)
        return vnode.high_watermark if at is None else at[0]

    async def _ask(
        self,
        node: int,
        places: list[TopicPartition],
        asked: int,
        found: dict[TopicPartition, int],
        problems: list[KafkaError],
    ) -> None:
        """Ask a node about partitions that it leads. `find` asks again about those that it does not answer."""
        try:
            told = await self._told(node, places, asked)
            late = [at for at, offset in told.items() if offset < 0]
            if late:  # there are no records that late
                told.update(await self._told(node, late, LATEST))
            found.update({at: offset for at, offset in told.items() if offset >= 0})
        except KafkaError as error:
            problems.append(error)
        except Unreachable:
            pass

    async def _told(self, node: int, places: list[TopicPartition], asked: int) -> dict[TopicPartition, int]:
        assert self.peers is not None
        by_topic: dict[str, list[ListOffsetsPartition]] = {}
        time, replica = (LATEST, self._partitions.node_id) if asked == LOG_END else (asked, -1)
        for topic, index in places:
            by_topic.setdefault(topic, []).append(ListOffsetsPartition(partition_index=index, timestamp=time))
        topics = [ListOffsetsTopic(name=name, partitions=parts) for name, parts in by_topic.items()]
        answer = await self.peers.ask(node, ListOffsetsRequest(replica_id=replica, topics=topics))
        told: dict[TopicPartition, int] = {}
        for topic in answer.topics:
            for part in topic.partitions:
                if not part.error_code:
                    told[topic.name, part.partition_index] = part.offset
                elif part.error_code not in _AGAIN:
                    why = f"{topic.name}-{part.partition_index} at node {node}: {ErrorCode(part.error_code).name}"
                    raise KafkaError(ErrorCode(part.error_code), why)
        return told
