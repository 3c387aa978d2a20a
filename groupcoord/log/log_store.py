"""The coordinators' store: it keeps their records in the vnodes of `__consumer_offsets` and `__transaction_state`.

An append is done when it is durable (`groupcoord.log.durability`). A failed vnode calls back, too, and everything that
waits for it fails: only reading the log again shows whether such records are in it.

A partition is read back by a `Replay`: `next` returns pieces of the log on the event loop's thread; `take` reads and
decodes one, and may run in another thread.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Generic, Protocol, TypeVar

from barnabas.groupcoord.log.durability import Durability
from barnabas.groupcoord.log.image import NO_PRODUCER
from barnabas.groupcoord.log.records import CoordinatorRecord
from barnabas.groupcoord.log.store import ProducerEpoch
from barnabas.groupcoord.log.superseded import without_superseded
from barnabas.storage.vnode import Origin, Slice, Vnode
from barnabas.wire import batch
from barnabas.wire.aliases import BytesLike
from barnabas.wire.errors import ErrorCode, KafkaError
from barnabas.wire.schema import ProtocolError

log = logging.getLogger(__name__)

_PIECE = 16 * 1024 * 1024
_TOMBSTONES_AT_ONCE = 1000


class Image(Protocol):
    """The state in a log, as far as it has been read."""

    def apply(self, key: bytes, value: bytes | None, producer_id: int = NO_PRODUCER) -> None:
        """Apply one data record. `producer_id` is given only if its batch is transactional. Raises ProtocolError."""

    def end_transaction(self, producer_id: int, *, committed: bool) -> None:
        """Apply an end marker of that producer."""


I = TypeVar("I", bound=Image)  # noqa: E741


class LogStore(Generic[I]):
    """A `Store` over vnodes.

    `vnode_of` returns a partition's vnode, or None if this broker does not own it; `new_image` makes the image into
    which a partition is read.
    """

    def __init__(
        self,
        vnode_of: Callable[[int], Vnode | None],
        new_image: Callable[[], I],
        durability: Durability,
        wall_ms: Callable[[], int],
    ) -> None:
        self._vnode_of = vnode_of
        self._new_image = new_image
        self._durability = durability
        self._wall_ms = wall_ms

    def append(
        self,
        partition: int,
        records: Sequence[CoordinatorRecord],
        done: Callable[[ErrorCode], None],
        *,
        producer: ProducerEpoch | None = None,
    ) -> None:
        """See `Store`. The records are one batch, so they are in the log together or not at all."""
        vnode = self._vnode_of(partition)
        if vnode is None:
            done(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return
        now_ms = self._wall_ms()
        try:
            for part in _parts(records):
                made = [batch.Record(offset=-1, timestamp=now_ms, key=each.key, value=each.value) for each in part]
                if producer is None:
                    data = batch.build_batch(made)
                else:
                    data = batch.build_batch(
                        made,
                        producer_id=producer.producer_id,
                        producer_epoch=producer.producer_epoch,
                        is_transactional=True,
                    )
                last = vnode.append(data, now_ms=now_ms, origin=Origin.COORDINATOR).last_offset
        except KafkaError as error:
            log.warning("partition %d: %s", partition, error.message)
            done(error.code)
            return
        self._durability.after(vnode, last, done)

    def replay(self, partition: int) -> Replay[I]:
        """Begin to read a partition. Raises KafkaError if it is not on this broker or cannot be read."""
        vnode = self._vnode_of(partition)
        if vnode is None:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"partition {partition} is not here")
        return Replay(vnode, self._new_image())

    def load(self, partition: int) -> I:
        """Read a partition synchronously."""
        replay = self.replay(partition)
        while (piece := replay.next()) is not None:
            replay.take(piece)
        return replay.image


class Replay(Generic[I]):
    """One reading of a partition, up to its end at the time of the last `next`."""

    def __init__(self, vnode: Vnode, image: I) -> None:
        self.image = image
        self._vnode = vnode
        self.damage: tuple[int, KafkaError] | None = None
        self._position = vnode.log_start_offset

    def next(self) -> Slice | None:
        """The next piece of the log, or None at its end. Call `take` for the previous piece first.

        Raises KafkaError. After a damaged batch, which is being set aside, start reading again.
        """
        if self.damage is not None:
            raise self._vnode.found_damage(*self.damage)
        return self._vnode.read(self._position, _PIECE).slice

    def take(self, piece: Slice) -> None:
        """Read the piece and apply its valid records, up to a damaged batch."""
        for part, upto in without_superseded(piece.read()):
            self._take(part)
            if self.damage is not None:
                return
            self._position = max(self._position, upto)

    def _take(self, part: BytesLike) -> None:
        for header, data in batch.iter_batches(part):
            try:
                batch.check(data)
            except KafkaError as error:
                self.damage = header.base_offset, error
                return
            self._position = header.last_offset + 1
            producer_id = header.producer_id if header.is_transactional else NO_PRODUCER
            for record in batch.iter_records(data):
                if header.is_control:
                    self._end_transaction(header.producer_id, record.key)
                elif record.key is not None:
                    self._apply(record, producer_id)

    def _apply(self, record: batch.Record, producer_id: int) -> None:
        assert record.key is not None
        try:
            self.image.apply(record.key, record.value, producer_id)
        except ProtocolError as error:
            # One unreadable record must not disable all groups of the partition.
            log.error("%r offset %d is skipped: %s", self._vnode, record.offset, error)

    def _end_transaction(self, producer_id: int, key: bytes | None) -> None:
        kind = batch.control_type(key)
        if kind in (batch.ControlType.COMMIT, batch.ControlType.ABORT):
            self.image.end_transaction(producer_id, committed=kind == batch.ControlType.COMMIT)


def _parts(records: Sequence[CoordinatorRecord]) -> Iterator[Sequence[CoordinatorRecord]]:
    """All records at once, except for many tombstones: half a clean-up is valid, but an oversized batch is not."""
    if len(records) <= _TOMBSTONES_AT_ONCE or any(record.value is not None for record in records):
        yield records
        return
    for start in range(0, len(records), _TOMBSTONES_AT_ONCE):
        yield records[start : start + _TOMBSTONES_AT_ONCE]
