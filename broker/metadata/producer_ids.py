"""Producer ids: blocks reserved in the metadata log, single ids from memory (KIP-98, KIP-730)."""

from __future__ import annotations

import trio

from barnabas.broker.metadata.topic_manager import TopicManager


class ProducerIds:
    """Gives each id once. After a restart the rest of the last block is left unused."""

    def __init__(self, topics: TopicManager) -> None:
        self._topics = topics
        self._next = self._end = 0
        self._reserving = trio.Lock()

    async def next(self) -> int:
        """A new producer id. Raises KafkaError if a block cannot be reserved."""
        while self._next == self._end:
            async with self._reserving:
                if self._next == self._end:
                    first, count = await self.reserve()
                    self._next, self._end = first, first + count
        given = self.at_once()
        assert given is not None
        return given

    async def reserve(self) -> tuple[int, int]:
        """Reserve a block of new ids; gives the first and their number. Raises KafkaError."""
        with trio.CancelScope(shield=True):
            async with self._topics.changes:
                first, count, change = self._topics.metadata.producer_id_block()
                await self._topics.commit(change)
        return first, count

    def at_once(self) -> int | None:
        """A new producer id, if one is reserved already."""
        if self._next == self._end:
            return None
        self._next += 1
        return self._next - 1
