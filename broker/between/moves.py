"""On the owner of the metadata: moves of partitions from one node to another, while their clients wait (KIP-455).

    request -> the log says that no node leads the partition -> its old leader closes it, as its next fetch shows
            -> the log names the new leader, which opens the partition unchanged

Each step is in the metadata log, so a move continues after a kill at any moment. While no node leads a partition, its
clients are told so and try again. A cancelled move returns in the same way.
"""

from __future__ import annotations

from collections.abc import Sequence

import trio

from barnabas.broker.between.followers import Followers
from barnabas.broker.between.leaders import leaves, led_by
from barnabas.broker.log import EventLog
from barnabas.broker.metadata.image import Listener, MetadataImage, TopicImage
from barnabas.broker.metadata.topic_manager import TopicManager
from barnabas.wire.aliases import TopicPartition
from barnabas.wire.errors import ErrorCode, KafkaError
from barnabas.wire.internal_topics import QUERIES_TOPIC
from barnabas.wire.types import Message

# The pause after a failed move.
_RETRY_SECONDS = 1.0
# The most partitions that get their new leader in one change of the metadata.
_AT_ONCE = 500


class Moves(Listener):
    """All unfinished moves. They are stored in the metadata."""

    def __init__(self, metadata: MetadataImage, topics: TopicManager, followers: Followers, log: EventLog) -> None:
        self._metadata, self._topics, self._followers, self._log = metadata, topics, followers, log
        self._some = trio.Event()

    def topic_changed(self, before: TopicImage | None, after: TopicImage | None) -> None:
        if self._metadata.moves:
            self._some.set()

    async def ask(self, wanted: Sequence[tuple[TopicPartition, int | None]]) -> list[KafkaError | None]:
        """Start moves to the given nodes; None cancels a move. Returns an error or None for each."""
        answers: list[KafkaError | None] = []
        async with self._topics.changes:
            records: dict[TopicPartition, Message | None] = {}
            for at, node in wanted:
                try:
                    records[at] = self._change(at, node)
                    answers.append(None)
                except KafkaError as error:
                    answers.append(error)
            changes = [record for record in records.values() if record is not None]
            if changes:
                try:
                    await self._topics.commit(changes)
                except KafkaError as error:
                    return [error if answer is None else answer for answer in answers]
        return answers

    def _change(self, at: TopicPartition, node: int | None) -> Message | None:
        """The record that starts or redirects a move; None if none is needed. Raises KafkaError."""
        name, index = at
        topic = self._metadata.topics.get(name)
        if topic is None or index not in topic.partitions:
            why = f"Unable to find partition {name[:300]}:{index}."
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, why)
        move = self._metadata.moves.get((topic.topic_id, index))
        if node is None:
            if move is None:
                raise KafkaError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
            node = move.source
        self._topics.placement.check([[node]])
        if name == QUERIES_TOPIC and node != self._metadata.node_id:
            why = f"{name} stays with broker {self._metadata.node_id}, which uses it to talk to the streams driver."
            raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, why)
        if move is None:
            return None if topic.partitions[index].node == node else leaves(self._metadata, at, node)
        if move.target == node:
            return None
        # The source stays the same: no other node has opened the partition since.
        return leaves(self._metadata, at, node, source=move.source)

    async def run(self) -> None:
        """Finish the unfinished moves, until cancelled."""
        while True:
            if not self._metadata.moves:
                self._some = trio.Event()
                await self._some.wait()
            await self._followers.moved_on(self._is_put_away)
            try:
                await self._arrive()
            except KafkaError as error:
                self._log.error("partition.not_moved", reason=error, again_after=_RETRY_SECONDS)
                await trio.sleep(_RETRY_SECONDS)

    def _is_put_away(self) -> bool:
        """Whether some node has closed a partition that moves away from it."""
        return not self._metadata.moves or any(self._is_free(move.source) for move in self._metadata.moves.values())

    def _is_free(self, source: int) -> bool:
        """Whether a node has closed all partitions that move away: it has applied the current log."""
        if source == self._metadata.node_id:
            return True
        at = self._followers.nodes.get(source)
        return at is not None and at >= self._metadata.log.high_watermark

    async def _arrive(self) -> None:
        """Give closed partitions to their new leaders."""
        async with self._topics.changes:
            records: list[Message] = []
            for (topic_id, index), (source, target) in self._metadata.moves.items():
                if len(records) < _AT_ONCE and self._is_free(source):
                    name = self._metadata.by_id[topic_id].name
                    records.append(led_by(self._metadata, (name, index), target))
            if records:
                await self._topics.commit(records)
        if records:
            self._log.info("partitions.moved", partitions=len(records), left=len(self._metadata.moves))
