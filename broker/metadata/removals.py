"""Make the removal of topics durable on a node: the removal of their folders and of their committed offsets."""

from __future__ import annotations

from barnabas.broker.metadata.image import MetadataImage
from barnabas.broker.partitions import Partitions
from barnabas.broker.workers import Workers
from barnabas.storage.data_dir import DataDir
from barnabas.storage.flusher import Flusher
from barnabas.wire.internal_topics import OFFSETS_TOPIC


class Removals:
    """Folders are gone once their removal is durable, offsets once their tombstones are."""

    def __init__(
        self,
        metadata: MetadataImage,
        partitions: Partitions,
        data_dir: DataDir,
        flusher: Flusher,
        workers: Workers,
    ) -> None:
        self._metadata, self._partitions, self._data_dir = metadata, partitions, data_dir
        self._flusher, self._workers = flusher, workers

    async def make_durable(self) -> None:
        """All offsets led here must have been read, with tombstones in their logs. Raises KafkaError, OSError."""
        await self._workers.disk(self._data_dir.sync)
        offsets = self._metadata.topics.get(OFFSETS_TOPIC)
        for index in list(offsets.partitions) if offsets is not None else ():
            vnode = self._partitions.get(OFFSETS_TOPIC, index)
            if vnode is not None and vnode.loaded and vnode.error is None:
                await self._flusher.flushed(vnode, vnode.log_end_offset)
