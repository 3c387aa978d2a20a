"""On the owner of the metadata: the snapshots that the other nodes begin with, in pieces.

    a node's first fetch -> the newest snapshot is named in place of records -> FetchSnapshot, piece by piece
    -> the log from the snapshot's end on

A snapshot that is damaged on the disk is not offered again: the older one, with the log from its end on, has the same
content.
"""

from __future__ import annotations

import trio

from barnabas.broker.log import EventLog
from barnabas.broker.metadata.image import METADATA_TOPIC
from barnabas.broker.metadata.records import snapshot_records
from barnabas.broker.workers import Workers
from barnabas.storage.data_dir import DataDir
from barnabas.storage.snapshots import SnapshotId
from barnabas.wire.errors import ErrorCode, KafkaError
from barnabas.wire.schema import ProtocolError

#: The most bytes in one piece.
PIECE_BYTES = 1 << 20


class OfferedSnapshots:
    """The whole snapshots of the metadata log of this node."""

    def __init__(self, data_dir: DataDir, workers: Workers, log: EventLog) -> None:
        self._files, self._workers, self._log = data_dir.snapshots(METADATA_TOPIC, 0), workers, log
        self._damaged: set[SnapshotId] = set()

    def newest(self) -> SnapshotId | None:
        """The newest snapshot that is not known to be damaged. Raises OSError."""
        return next((found for found in self._files.ids() if found not in self._damaged), None)

    async def read(self, snapshot: SnapshotId, position: int, most: int) -> tuple[int, bytes]:
        """The size of a snapshot in bytes, and at most `most` bytes of it from a position on.

        Before its first piece is given, all of it is checked. Raises KafkaError SNAPSHOT_NOT_FOUND if it does not exist
        or is damaged, POSITION_OUT_OF_RANGE, and KAFKA_STORAGE_ERROR if it cannot be read.
        """
        if position < 0 or most < 0:
            raise KafkaError(ErrorCode.POSITION_OUT_OF_RANGE, f"{most} bytes from {position} on")
        try:
            if position == 0:
                await self._check(snapshot)
            if snapshot in self._damaged:
                raise KafkaError(ErrorCode.SNAPSHOT_NOT_FOUND, f"{snapshot.name} is damaged")
            size, piece = await self._workers.disk(
                lambda: self._files.read_piece(snapshot, position, min(most, PIECE_BYTES))
            )
        except FileNotFoundError:
            raise KafkaError(ErrorCode.SNAPSHOT_NOT_FOUND, f"there is no {snapshot.name}") from None
        except OSError as error:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from None
        if position >= size:
            raise KafkaError(ErrorCode.POSITION_OUT_OF_RANGE, f"{position} of {size} bytes")
        return size, piece

    async def _check(self, snapshot: SnapshotId) -> None:
        data = await self._workers.disk(lambda: self._files.read(snapshot))
        try:
            await trio.to_thread.run_sync(snapshot_records, data)
        except (KafkaError, ProtocolError) as error:
            if snapshot not in self._damaged:
                self._log.error("metadata.snapshot.damaged", file=snapshot.name, reason=error)
            self._damaged.add(snapshot)
