"""The metadata on a node that does not own it: read from the owner's log, and applied as the owner applies it.

    begin:   the newest snapshot -> the log up to its high watermark -> an image; no listener is notified
    follow:  a fetch that waits for the next change -> what the change needs on this node -> the image and its listeners
             -> the next fetch, which tells the owner how far this node is

The owner's folder is on the same disk, so the snapshot is read there. The log is fetched as Kafka's brokers fetch it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import trio

from barnabas.broker.between.channel import Channel
from barnabas.broker.between.channels import Channels, reached
from barnabas.broker.between.followed_topics import FollowedTopics
from barnabas.broker.between.followers import BEGINS, FOLLOWS
from barnabas.broker.between.membership import Membership
from barnabas.broker.between.peers import Unreachable
from barnabas.broker.log import EventLog
from barnabas.broker.metadata.image import METADATA_TOPIC_ID, MetadataImage, changes_of
from barnabas.storage.errors import StorageError
from barnabas.storage.snapshots import Snapshots
from barnabas.wire.aliases import BytesLike
from barnabas.wire.batch import check, iter_batches
from barnabas.wire.errors import ErrorCode, KafkaError
from barnabas.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData, ReplicaState
from barnabas.wire.types import Message

#: How long a fetch waits for a change.
_WAIT_MS = 5_000
_BYTES = 1 << 20
# Larger changes are decoded in a thread.
_BATCH_AT_ONCE = 32 << 10


class Following:
    """Keeps the metadata of this node up to date."""

    def __init__(
        self,
        membership: Membership,
        channels: Channels,
        metadata: MetadataImage,
        topics: FollowedTopics,
        log: EventLog,
    ) -> None:
        self._membership, self._channels, self._metadata = membership, channels, metadata
        self._topics, self._log = topics, log
        self._channel: Channel | None = None
        #: The offset of the next record. All records before it are applied.
        self.offset = 0
        self._caught_up = trio.Event()
        #: Called after each new connection to the owner.
        self.on_connected: Callable[[], object] = bool

    async def begin(self, snapshots: Snapshots) -> None:
        """Read the owner's current image, and tell no listener. Raises StorageError for a damaged log."""
        metadata = self._metadata
        await self._connected()  # the owner's folder exists once it answers
        while True:
            self.offset = metadata.begin_with(snapshots)
            found = await self._fetch(BEGINS, 0)
            if found.error_code != ErrorCode.OFFSET_OUT_OF_RANGE:  # otherwise there is a newer snapshot
                break
        while True:
            for records, timestamp in await self._changes(found):
                for record in records:
                    metadata.apply(record, timestamp)
            if self.offset >= found.high_watermark:
                return
            found = await self._fetch(BEGINS, 0)

    async def run(self) -> None:
        """Apply changes until cancelled."""
        while True:
            found = await self._fetch(FOLLOWS, _WAIT_MS if self._caught_up.is_set() else 0)
            for records, timestamp in await self._changes(found):
                await self._topics.follow(records, timestamp)
            if self.offset >= found.high_watermark:
                self._caught_up.set()

    async def caught_up(self) -> None:
        """Wait until this node has been as far as the owner once. From then on, the owner's changes wait for it."""
        await self._caught_up.wait()

    async def _changes(self, found: PartitionData) -> list[tuple[list[Message], int]]:
        """Each change with its time. `offset` moves behind them. Raises StorageError."""
        changes: list[tuple[list[Message], int]] = []
        if found.error_code:
            raise StorageError(f"the metadata cannot be followed from {self.offset} on: error {found.error_code}")
        for header, batch in iter_batches(cast("BytesLike", found.records or b"")):
            try:
                check(batch)
            except KafkaError as error:
                raise StorageError(f"the owner of the metadata sends a damaged batch: {error}") from error
            if header.last_offset >= self.offset and not header.is_control:
                if len(batch) > _BATCH_AT_ONCE:
                    records = await trio.to_thread.run_sync(list, changes_of(batch))
                else:
                    records = list(changes_of(batch))
                changes.append(([record for record, _ in records], header.max_timestamp))
            self.offset = max(self.offset, header.last_offset + 1)
        return changes

    async def _fetch(self, how: int, wait_ms: int) -> PartitionData:
        """Fetch the next changes from the owner. While it is down, try again and again."""
        part = FetchPartition(partition=0, fetch_offset=self.offset, partition_max_bytes=_BYTES)
        request = FetchRequest(
            replica_state=ReplicaState(self._membership.node_id, how),
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=_BYTES,
            topics=[FetchTopic(topic_id=METADATA_TOPIC_ID, partitions=[part])],
        )
        while True:
            channel = await self._connected()
            try:
                answer = await channel.ask(request)
            except Unreachable:
                continue
            found: PartitionData = answer.responses[0].partitions[0]
            return found

    async def _connected(self) -> Channel:
        """A connection to the owner. Waits while the owner is down."""
        if self._channel is None or self._channel.is_gone:
            self._channel = await reached(lambda: self._channels.open(self._membership.owner), self._tell_away)
            self.on_connected()
        return self._channel

    def _tell_away(self, error: Unreachable) -> None:
        self._log.warning("metadata.owner.away", reason=error, effect="this node serves with the metadata that it has")

    async def close(self) -> None:
        """Stop following."""
        if self._channel is not None:
            await self._channel.close()
