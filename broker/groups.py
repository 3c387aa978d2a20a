"""The group coordinator in the broker: its store on `__consumer_offsets`, its clock, the waiting for its replies."""

from __future__ import annotations

from typing import Generic, TypeVar

import trio

from barnabas.broker.clock import Clock
from barnabas.broker.config import BrokerConfig
from barnabas.broker.delayed_response import DelayedResponse
from barnabas.broker.log import EventLog
from barnabas.broker.metadata_image import MetadataImage, TopicImage
from barnabas.broker.partitions import Partitions
from barnabas.broker.topic_manager import TopicManager
from barnabas.groupcoord.coordinator import GroupCoordinator
from barnabas.groupcoord.log_store import LogStore
from barnabas.groupcoord.timers import load_partition, run_timers
from barnabas.groupcoord.topics import Topic
from barnabas.storage.flusher import Flusher
from barnabas.wire.errors import KafkaError
from barnabas.wire.internal_topics import OFFSETS_TOPIC
from barnabas.wire.types import Message

R = TypeVar("R", bound=Message)
# When a group partition that could not be loaded is tried again; each time it waits twice as long, up to the last.
FIRST_RETRY_SECONDS, LAST_RETRY_SECONDS = 0.5, 60.0


class Reply(DelayedResponse, Generic[R]):
    """An answer that the coordinator gives at once or later. What was asked is in its hands before that."""

    __slots__ = ()

    def __call__(self, answer: R) -> None:
        self.finish(answer)

    def now_or_later(self) -> R | DelayedResponse:
        """The answer if it is there, else the place for it: what a handler gives back."""
        return self.message if self.finished else self  # type: ignore[return-value]


class Groups:
    """All groups of this broker; `coordinator` is what the APIs call."""

    def __init__(
        self,
        config: BrokerConfig,
        metadata: MetadataImage,
        topics: TopicManager,
        partitions: Partitions,
        flusher: Flusher,
        clock: Clock,
        log: EventLog,
    ) -> None:
        self._metadata, self._topics, self._partitions, self._log = metadata, topics, partitions, log
        self._limiter = trio.CapacityLimiter(2)
        self._loading = trio.Lock()
        self._loaded: set[int] = set()
        self.store = LogStore(
            lambda partition: partitions.vnodes.get((OFFSETS_TOPIC, partition)), flusher.request, clock.wall_ms
        )
        self.coordinator = GroupCoordinator(
            config.group_config(), self.store, trio.current_time, topics=_KnownTopics(metadata), wall_ms=clock.wall_ms
        )

    async def start(self, nursery: trio.Nursery) -> None:
        """Begin to load what is on disk, and the timers. Requests are answered meanwhile."""
        self._nursery = nursery
        await nursery.start(run_timers, self.coordinator.deadlines)
        self._load_new()

    async def ready(self) -> None:
        """Make `__consumer_offsets` if it is not there. Raises KafkaError if that fails."""
        await self._topics.offsets_topic()
        self._load_new()

    def _load_new(self) -> None:
        topic = self._metadata.topics.get(OFFSETS_TOPIC)
        if topic is None:
            return
        new = [partition for partition in sorted(topic.partitions) if partition not in self._loaded]
        self._loaded.update(new)
        if new:
            # What is empty has nothing to replay: serve it at once.
            filled = [p for p in new if not self._take_if_empty(p)]
            self._nursery.start_soon(self._load, filled)

    def _take_if_empty(self, partition: int) -> bool:
        vnode = self._partitions.vnodes.get((OFFSETS_TOPIC, partition))
        try:
            if vnode is None or vnode.log_end_offset > vnode.log_start_offset:
                return False
        except KafkaError:
            return False
        self.coordinator.finish_load(self.coordinator.begin_load(partition), self.store.load(partition))
        return True

    async def _load(self, partitions: list[int]) -> None:
        for partition in partitions:
            self.coordinator.begin_load(partition)
        wait = FIRST_RETRY_SECONDS
        while partitions:
            failed = []
            for partition in partitions:
                if partition in self._loaded:  # else the topic was deleted meanwhile
                    try:
                        await load_partition(self.coordinator, self.store, partition, limiter=self._limiter)
                    except (KafkaError, OSError) as error:
                        failed.append(partition)
                        self._log.error("groups.load_failed", partition=partition, error=error, again_after=wait)
            partitions = failed
            if partitions:
                await trio.sleep(wait)
                wait = min(wait * 2, LAST_RETRY_SECONDS)

    @property
    def all_loaded(self) -> bool:
        """Whether every partition of `__consumer_offsets` that there is has been read."""
        topic = self._metadata.topics.get(OFFSETS_TOPIC)
        shards = self.coordinator.shards.by_partition
        return topic is None or all(n in shards and shards[n].is_loaded for n in topic.partitions)

    def topic_deleted(self, topic: TopicImage) -> None:
        """Forget the offsets of a deleted topic."""
        if topic.name == OFFSETS_TOPIC:
            for partition in self._loaded:
                self.coordinator.unload(partition)
            self._loaded.clear()
        else:
            self.coordinator.topic_deleted(topic.name, topic.topic_id)


class _KnownTopics:
    """The metadata image as the coordinator wants to see it."""

    def __init__(self, metadata: MetadataImage) -> None:
        self._metadata = metadata

    def by_name(self, name: str) -> Topic | None:
        return self._shown(self._metadata.topics.get(name))

    def by_id(self, topic_id: bytes) -> Topic | None:
        return self._shown(self._metadata.by_id.get(topic_id))

    def _shown(self, topic: TopicImage | None) -> Topic | None:
        if topic is None:
            return None
        since_ms = self._metadata.removed_ms.get(topic.name, -1)
        return Topic(topic.name, topic.topic_id, len(topic.partitions), since_ms)
