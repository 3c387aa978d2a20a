"""The metadata on a node that does not own it: read from the owner's log, and applied as the owner applies it.

    begin:   the owner's newest snapshot, in pieces -> its log up to the high watermark -> an image; no listener is
             notified
    follow:  a fetch that waits for the next change -> what the change needs on this node -> the image and its listeners
             -> the next fetch, which tells the owner how far this node is

Snapshot and log are fetched as Kafka's brokers fetch them (KIP-595, KIP-630).
Nothing of a damaged answer is applied: the node says so in its log once, keeps its image, and asks again.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple, cast

import trio

from barnabas.broker.between.channel import Channel
from barnabas.broker.between.channels import Channels, reached
from barnabas.broker.between.followed_topics import FollowedTopics
from barnabas.broker.between.followers import BEGINS, FOLLOWS
from barnabas.broker.between.membership import Membership
from barnabas.broker.between.peers import Unreachable
from barnabas.broker.log import EventLog
from barnabas.broker.metadata.image import METADATA_TOPIC, METADATA_TOPIC_ID, MetadataImage, changes_of
from barnabas.broker.metadata.records import decode_snapshot
from barnabas.broker.workers import go_through
from barnabas.storage.errors import StorageError
from barnabas.wire.aliases import BytesLike
from barnabas.wire.batch import check, iter_batches
from barnabas.wire.errors import ErrorCode, KafkaError
from barnabas.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    PartitionData,
    ReplicaState,
    SnapshotId,
)
from barnabas.wire.messages.fetch_snapshot import (
    FetchSnapshotRequest,
    PartitionSnapshot,
    PartitionSnapshotData,
    TopicSnapshot,
)
from barnabas.wire.schema import ProtocolError
from barnabas.wire.types import Message

#: How long a fetch waits for a change.
_WAIT_MS = 5_000
_BYTES = 1 << 20
# Larger changes are decoded in a thread.
_BATCH_AT_ONCE = 32 << 10
# The pause after an answer that cannot be read.
_RETRY_SECONDS = 1.0


class Change(NamedTuple):
    """The records of one batch, their timestamp in ms, and the offset of the next record after them."""

    records: list[Message]
    timestamp: int
    end: int


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

    async def begin(self) -> None:
        """Read the owner's current image, and tell no listener. Raises StorageError if something of it is damaged."""
        self.offset = 0
        while True:
            found = await self._fetch(BEGINS, 0)
            if found.snapshot_id.end_offset >= 0:
                await self._begin_with(found.snapshot_id)
                continue
            if found.error_code == ErrorCode.OFFSET_OUT_OF_RANGE and self.offset:  # there is a newer snapshot
                self.offset = 0
                continue
            for change in await self._changes(found):
                for record in change.records:
                    self._metadata.apply(record, change.timestamp)
                self.offset = change.end
            if self.offset >= found.high_watermark:
                return

    async def _begin_with(self, snapshot: SnapshotId) -> None:
        """Read a snapshot of the owner; without effect if the owner has it no more. Raises StorageError."""
        data, size = bytearray(), 1
        while len(data) < size:
            found = await self._fetch_snapshot(snapshot, len(data))
            if found.error_code == ErrorCode.SNAPSHOT_NOT_FOUND:
                return
            piece = cast("BytesLike", found.unaligned_records or b"")
            if found.error_code or not piece:
                name = ErrorCode(found.error_code).name
                raise StorageError(f"the owner of the metadata gives its snapshot up to {len(data)} only: {name}")
            data += piece
            size = found.size
        try:
            records = await trio.to_thread.run_sync(decode_snapshot, bytes(data))
        except (KafkaError, ProtocolError) as error:
            raise StorageError(f"the owner of the metadata sends a damaged snapshot: {error}") from error
        await go_through(self._metadata.begin_with(records))
        self.offset = snapshot.end_offset

    async def _fetch_snapshot(self, snapshot: SnapshotId, position: int) -> PartitionSnapshotData:
        part = PartitionSnapshot(snapshot_id=snapshot, position=position)
        request = FetchSnapshotRequest(
            replica_id=self._membership.node_id, max_bytes=_BYTES, topics=[TopicSnapshot(METADATA_TOPIC, [part])]
        )
        answer = await self._ask(request)
        found: PartitionSnapshotData = answer.topics[0].partitions[0]
        return found

    async def run(self) -> None:
        """Apply changes until cancelled.

        Raises StorageError if the owner's log no longer has the next change: the next start reads the owner's snapshot.
        """
        told = False
        while True:
            found = await self._fetch(FOLLOWS, _WAIT_MS if self._caught_up.is_set() else 0)
            if found.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                raise StorageError(f"the owner of the metadata has no changes from {self.offset} on any more")
            try:
                changes = await self._changes(found)
            except StorageError as error:
                if not told:
                    effect = "this node serves with the metadata that it has"
                    self._log.error("metadata.not_followed", reason=error, effect=effect)
                told = True
                await self.close()
                await trio.sleep(_RETRY_SECONDS)
                continue
            told = False
            for change in changes:
                await self._topics.follow(change.records, change.timestamp)
                self.offset = change.end
            if self.offset >= found.high_watermark:
                self._caught_up.set()

    async def caught_up(self) -> None:
        """Wait until this node has been as far as the owner once. From then on, the owner's changes wait for it."""
        await self._caught_up.wait()

    async def _changes(self, found: PartitionData) -> list[Change]:
        """The changes in an answer that are not applied yet. Raises StorageError."""
        if found.error_code:
            name = ErrorCode(found.error_code).name
            raise StorageError(f"the metadata cannot be followed from {self.offset} on: {name}")
        data, changes = cast("BytesLike", found.records or b""), []
        try:
            for header, batch in iter_batches(data):
                check(batch)
                if header.last_offset < self.offset:
                    continue
                records: list[Message] = []
                if not header.is_control:
                    records = await self._decoded(batch)
                changes.append(Change(records, header.max_timestamp, header.last_offset + 1))
        except (KafkaError, ProtocolError) as error:
            raise StorageError(f"the owner of the metadata sends a damaged batch: {error}") from error
        if len(data) and not changes:
            raise StorageError(f"the owner of the metadata sends {len(data)} bytes without a whole batch")
        return changes

    async def _decoded(self, batch: memoryview) -> list[Message]:
        """The records of a batch. Raises KafkaError, ProtocolError."""
        if len(batch) > _BATCH_AT_ONCE:
            found = await trio.to_thread.run_sync(list, changes_of(batch))
        else:
            found = list(changes_of(batch))
        return [record for record, _ in found]

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
        answer = await self._ask(request)
        found: PartitionData = answer.responses[0].partitions[0]
        return found

    async def _ask(self, request: Message) -> Any:
        """Ask the owner. While it is down, ask again and again."""
        while True:
            channel = await self._connected()
            with suppress(Unreachable):
                return await channel.ask(request)

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
