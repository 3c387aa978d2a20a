"""The group coordinator in the broker: its store on `__consumer_offsets`, its clock, and waiting for its replies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

import trio

from barnabas.broker.clock import Clock
from barnabas.broker.coordinators.loading import Loading
from barnabas.broker.log import EventLog
from barnabas.broker.metadata.image import Listener, MetadataImage, TopicImage
from barnabas.broker.metadata.topic_manager import TopicManager
from barnabas.broker.net.delayed_response import DelayedResponse
from barnabas.broker.partitions import Partitions
from barnabas.broker.settings.config import BrokerConfig, OffsetStores
from barnabas.groupcoord.coordinator import GroupCoordinator
from barnabas.groupcoord.log.durability import Durability
from barnabas.groupcoord.log.image import PartitionImage
from barnabas.groupcoord.log.log_store import LogStore
from barnabas.groupcoord.timers import run_timers
from barnabas.groupcoord.topics import Topic
from barnabas.storage.flusher import Flusher
from barnabas.wire.errors import ErrorCode, KafkaError
from barnabas.wire.internal_topics import OFFSETS_TOPIC
from barnabas.wire.types import Message

if TYPE_CHECKING:
    from barnabas.broker.moving.zookeeper_offsets import ZooKeeperOffsets

R = TypeVar("R", bound=Message)


class Reply(DelayedResponse, Generic[R]):
    """An answer that the coordinator gives at once or later. The coordinator already has the request."""

    __slots__ = ()

    def __call__(self, answer: R) -> None:
        self.finish(answer)

    def now_or_later(self) -> R | DelayedResponse:
        """The answer if it is there, otherwise the object that completes it later. A handler returns this."""
        return self.message if self.finished else self  # type: ignore[return-value]


class Groups(Listener):
    """All groups of this broker. The APIs call `coordinator`."""

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
        self._config, self._metadata, self._topics = config, metadata, topics
        #: Shared with the transaction coordinator: the offsets that a transaction commits are durable before its
        #: marker.
        self.durability = Durability(flusher.request)
        self.known_topics = KnownTopics(metadata)
        store = LogStore(
            lambda partition: partitions.get(OFFSETS_TOPIC, partition),
            PartitionImage,
            self.durability,
            clock.wall_ms,
        )
        self.coordinator = GroupCoordinator(
            config.group_config(), store, trio.current_time, topics=self.known_topics, wall_ms=clock.wall_ms
        )
        #: The store that keeps offsets beside the log or instead of it, while it is used. None if only the log has
        #: them.
        self.elsewhere: ZooKeeperOffsets | None = None
        self.zookeeper: ZooKeeperOffsets | None = None
        if config["zookeeper.connect"]:
            from barnabas.broker.moving.zookeeper_offsets import ZooKeeperOffsets

            self.zookeeper = ZooKeeperOffsets(config, self.coordinator, self.known_topics, clock, log)
        self._loading = Loading(OFFSETS_TOPIC, self.coordinator, store, metadata, partitions, log, "groups.load_failed")

    async def start(self, nursery: trio.Nursery) -> None:
        """Start the timers and the load from disk. Requests are answered meanwhile."""
        await nursery.start(run_timers, self.coordinator.deadlines)
        if self.zookeeper is not None:
            await nursery.start(self.zookeeper.run)
        self._loading.start(nursery)

    async def ready(self) -> None:
        """Create `__consumer_offsets` if it does not exist. Raises KafkaError if that fails."""
        await self._topics.internal_topic(OFFSETS_TOPIC)

    def partition_of(self, group_id: str) -> int:
        """The partition of `__consumer_offsets` that a group belongs to.

        Raises KafkaError COORDINATOR_NOT_AVAILABLE if the topic is not in this node's image. Another node may have
        created it with a number of partitions that differs from the configuration of this node.
        """
        if not self.is_there:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{OFFSETS_TOPIC} does not exist yet")
        return self.coordinator.partition_of(group_id)

    @property
    def is_there(self) -> bool:
        """Whether `__consumer_offsets` exists, as far as this node knows."""
        return OFFSETS_TOPIC in self._metadata.topics

    def apply_offset_stores(self) -> None:
        """Apply offsets.storage and dual.commit.enabled. Raises ConfigError at a start that cannot use them."""
        self._config.check_offset_stores({"offsets.storage": self._config["offsets.storage"]})
        if self.zookeeper is not None:
            self.zookeeper.apply(self._config.offset_stores())
            self.elsewhere = self.zookeeper if self.zookeeper.is_on else None

    def check_offset_stores(self, after: OffsetStores) -> None:
        """Raises ConfigError for a change at run time after which some commits would not be found."""
        if self.zookeeper is not None:
            self.zookeeper.check_switch(self._config.offset_stores(), after)

    @property
    def all_loaded(self) -> bool:
        """Whether all of `__consumer_offsets` led here is loaded, and no offsets of deleted topics remain."""
        if self.coordinator.is_forgetting:
            return False
        topic = self._metadata.topics.get(OFFSETS_TOPIC)
        shards = self.coordinator.shards.by_partition
        here = self._metadata.node_id
        return topic is None or all(
            n in shards and shards[n].is_loaded for n, leader in topic.partitions.items() if leader.node == here
        )

    def topic_changed(self, before: TopicImage | None, after: TopicImage | None) -> None:
        """Forget the offsets of a deleted topic."""
        self._loading.topic_changed(before, after)
        if before is not None and after is None and before.name != OFFSETS_TOPIC:
            self.coordinator.topic_deleted(before.name, before.topic_id)


class KnownTopics:
    """The metadata image in the form that the coordinators use."""

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
