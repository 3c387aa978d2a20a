"""Loads the partitions of a coordinator's topic when this broker becomes their leader.

Requests are answered meanwhile. If a partition cannot be read, loading is tried again without limit.
"""

from __future__ import annotations

from typing import Generic, TypeVar

import trio

from barnabas.broker.log import EventLog
from barnabas.broker.metadata.image import MetadataImage, TopicImage
from barnabas.broker.partitions import Partitions
from barnabas.groupcoord.log.log_store import Image, LogStore
from barnabas.groupcoord.timers import Loads, load_partition
from barnabas.wire.errors import KafkaError

I = TypeVar("I", bound=Image)  # noqa: E741
L = TypeVar("L")
# Pauses before a partition that could not be loaded is tried again. Each is twice as long as the one before, up to the
# last.
FIRST_RETRY_SECONDS, LAST_RETRY_SECONDS = 0.5, 60.0


class Loading(Generic[L, I]):
    """Loads the partitions of `topic` into a coordinator. Failures are logged as `event`."""

    def __init__(
        self,
        topic: str,
        coordinator: Loads[L, I],
        store: LogStore[I],
        metadata: MetadataImage,
        partitions: Partitions,
        log: EventLog,
        event: str,
    ) -> None:
        # The partitions led here. Each has an object that stands for the present term: a partition may leave and come
        # back.
        self._turns: dict[int, object] = {}
        self._topic, self._coordinator, self._store = topic, coordinator, store
        self._metadata, self._partitions, self._log, self._event = metadata, partitions, log, event
        self._limiter = trio.CapacityLimiter(2)
        self._nursery: trio.Nursery | None = None

    def start(self, nursery: trio.Nursery) -> None:
        """Load the existing partitions. Later ones are loaded in the same nursery."""
        self._nursery = nursery
        topic = self._metadata.topics.get(self._topic)
        if topic is not None:
            self._load_new(topic)

    def topic_changed(self, before: TopicImage | None, after: TopicImage | None) -> None:
        """Unload partitions of the coordinator's topic that are no longer led here, and load new ones."""
        if self._topic not in (before and before.name, after and after.name):
            return
        for partition in self._turns.keys() - self._led(after):
            self._coordinator.unload(partition)
            del self._turns[partition]
        if after is not None:
            self._load_new(after)

    def _led(self, topic: TopicImage | None) -> set[int]:
        """The partitions that this broker leads."""
        here = self._metadata.node_id
        return {index for index, leader in topic.partitions.items() if leader.node == here} if topic else set()

    def _load_new(self, topic: TopicImage) -> None:
        """Load the partitions that were not led here before. Does nothing before `start`."""
        if self._nursery is None:
            return
        new = {partition: object() for partition in sorted(self._led(topic) - self._turns.keys())}
        self._turns.update(new)
        if new:
            # An empty partition has nothing to replay, so serve it at once.
            filled = {partition: turn for partition, turn in new.items() if not self._take_if_empty(partition)}
            self._nursery.start_soon(self._load, filled)

    def _take_if_empty(self, partition: int) -> bool:
        vnode = self._partitions.get(self._topic, partition)
        try:
            if vnode is None or vnode.log_end_offset > vnode.log_start_offset:
                return False
        except KafkaError:
            return False
        self._coordinator.finish_load(self._coordinator.begin_load(partition), self._store.load(partition))
        return True

    async def _load(self, turns: dict[int, object]) -> None:
        for partition in self._left(turns):
            self._coordinator.begin_load(partition)
        wait = FIRST_RETRY_SECONDS
        while partitions := self._left(turns):
            failed = False
            for partition in partitions:
                if partition not in self._left(turns) or self._partitions.get(self._topic, partition) is None:
                    continue  # it is gone, or its folder could not be made, which is logged and tried again elsewhere
                try:
                    await load_partition(self._coordinator, self._store, partition, limiter=self._limiter)
                    del turns[partition]
                except (KafkaError, OSError) as error:
                    if partition in self._left(turns):
                        failed = True
                        self._log.error(self._event, partition=partition, error=error, again_after=wait)
            if self._left(turns):
                await trio.sleep(wait if failed else FIRST_RETRY_SECONDS)
                wait = min(wait * 2, LAST_RETRY_SECONDS) if failed else FIRST_RETRY_SECONDS

    def _left(self, turns: dict[int, object]) -> list[int]:
        """The partitions that are still to be loaded, without those that were deleted or have moved."""
        return [partition for partition, turn in turns.items() if self._turns.get(partition) is turn]
