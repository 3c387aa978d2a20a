"""Snapshots of the metadata, which bound the size of its log and the time of a start (KIP-630).

    a change -> the log has grown enough, or the last snapshot is old enough -> all changes wait
    -> the image as records -> `.checkpoint` beside the log, durable -> the log below the previous snapshot is deleted

Two snapshots are kept, and the log from the older one on: if the newer one is damaged, the older one and the log have
the same content. A snapshot does not mention removed topics. A start needs to know them only as long as something of
them may be left: folders, until their removal is durable, and committed offsets, until their tombstones are. So both
are made durable first.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import trio

from barnabas.broker.clock import Clock
from barnabas.broker.log import EventLog
from barnabas.broker.metadata.image import METADATA_TOPIC, Listener, MetadataImage
from barnabas.broker.metadata.records import encode_snapshot
from barnabas.broker.metadata.removals import Removals
from barnabas.broker.metadata.topic_manager import TopicManager
from barnabas.broker.settings.config import BrokerConfig
from barnabas.broker.workers import Workers, Yielder
from barnabas.storage.data_dir import DataDir
from barnabas.storage.snapshots import SnapshotId, Snapshots
from barnabas.wire.errors import KafkaError

KEPT = 2
_RETRY_SECONDS = 60.0


class MetadataSnapshots(Listener):
    """Writes snapshots when it is time.

    `offsets_loaded` says whether all committed offsets of this node are in memory; `others_clean` whether no other node
    has anything left of removed topics.
    """

    def __init__(
        self,
        config: BrokerConfig,
        metadata: MetadataImage,
        topics: TopicManager,
        removals: Removals,
        offsets_loaded: Callable[[], bool],
        others_clean: Callable[[], bool],
        data_dir: DataDir,
        workers: Workers,
        clock: Clock,
        log: EventLog,
    ) -> None:
        self._metadata, self._topics, self._removals, self._data_dir = metadata, topics, removals, data_dir
        self._offsets_loaded, self._others_clean = offsets_loaded, others_clean
        self._workers, self._clock, self._log = workers, clock, log
        self._most_bytes = config["metadata.log.max.record.bytes.between.snapshots"]
        self._interval = config["metadata.log.max.snapshot.interval.ms"] / 1000
        self._grown = trio.Event()

    def change_applied(self) -> None:
        if self._metadata.bytes_since_snapshot >= self._most_bytes:
            self._grown.set()

    async def run(self) -> None:
        """Write snapshots until cancelled."""
        self.change_applied()
        while True:
            with trio.move_on_after(self._interval or float("inf")):
                await self._grown.wait()
            self._grown = trio.Event()
            if self._metadata.bytes_since_snapshot:
                why: object = None
                try:
                    if await self.take() is None:
                        why = "something of a removed topic may be left"
                except (KafkaError, OSError) as error:
                    why = error
                if why is not None:
                    self._log.warning("metadata.no_snapshot", reason=why, again_after=_RETRY_SECONDS)
                    await trio.sleep(_RETRY_SECONDS)
                self.change_applied()

    async def take(self) -> SnapshotId | None:
        """Write a snapshot of everything committed now; None if it has to wait. Raises KafkaError, OSError."""
        vnode = self._metadata.log
        began = time.perf_counter()
        with trio.CancelScope(shield=True):
            async with self._topics.changes:
                # Groups write their tombstones when they are loaded; folders that resist go at the next start.
                if not self._offsets_loaded() or self._topics.unremoved or not self._others_clean():
                    return None
                await self._removals.make_durable()
                snapshot = SnapshotId(vnode.log_end_offset, max(vnode.latest_epoch, 0))
                size = vnode.size_bytes
                data = await self._encoded(snapshot)
                files = self._data_dir.snapshots(METADATA_TOPIC, 0)
                await self._workers.disk(lambda: files.write(snapshot, data))
                self._metadata.snapshot_taken()
                vnode.roll(self._clock.wall_ms())
                kept = await self._workers.disk(lambda: _pruned(files))
                vnode.truncate_prefix(min(kept[-1].offset, vnode.high_watermark))
        self._log.info(
            "metadata.snapshot",
            offset=snapshot.offset,
            bytes=len(data),
            log_bytes_before=size,
            log_bytes=vnode.size_bytes,
            seconds=round(time.perf_counter() - began, 3),
        )
        return snapshot

    async def _encoded(self, snapshot: SnapshotId) -> bytes:
        breathe, parts = Yielder(), []
        for part in encode_snapshot(self._metadata.records(), snapshot.epoch, self._metadata.newest_ms):
            parts.append(part)
            await breathe()
        return b"".join(parts)


def _pruned(files: Snapshots) -> Sequence[SnapshotId]:
    files.prune(KEPT)
    return files.ids()
