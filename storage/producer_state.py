"""A vnode's memory of producers (KIP-98, KIP-360, KIP-890): the last five batches of each producer id, and where its
open transaction begins.

The state is a function of the log. A `.snapshot` file, in Kafka's format, saves it as of the offset in its name. Kafka
saves only a producer's last batch. Here a producer has an entry for each remembered batch, oldest first, so that also
after a restart a producer may repeat every batch that it had in flight. Kafka's reader would keep the last entry.

Any client may write under any producer id, so the number of remembered producers is bounded. The producer that was
silent for longest is forgotten first. Its next batch is accepted with any sequence, like that of a producer whose entry
has expired. A producer with an open transaction is never forgotten: the transaction coordinator bounds how many there
are.

A marker ends a transaction. With transaction version 2 the epoch grows with each transaction: the marker has a higher
epoch than the batches that it ends, so that late batches with the old epoch are fenced. In earlier versions the marker
has the same epoch as the batches.
"""

from __future__ import annotations

import os
import struct
from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from barnabas.storage.errors import StorageError
from barnabas.storage.io import Io, read_file, write_file
from barnabas.storage.txn_index import AbortedTransaction
from barnabas.storage.verification import Verifications
from barnabas.storage.watermarks import Undecided
from barnabas.wire.batch import BatchHeader, Marker, last_sequence
from barnabas.wire.crc import crc32c
from barnabas.wire.errors import ErrorCode, KafkaError

SUFFIX = ".snapshot"
# As many as a producer has in flight at most.
_KEPT_BATCHES = 5
# The most producers that one partition remembers: about 4 MB.
MOST_PRODUCERS = 5_000
_MAX_SEQUENCE = 2**31 - 1
_HEAD = struct.Struct(">hI")
_COUNT = struct.Struct(">i")
_ENTRY = struct.Struct(">qhiqiqiq")
_VERSION = 1


class KnownBatch(NamedTuple):
    first_sequence: int
    last_sequence: int
    base_offset: int
    last_offset: int
    timestamp: int


class Refused(NamedTuple):
    """A batch that could not be written: epoch, first sequence, and those of the batches that came behind it since."""

    epoch: int
    first: int
    behind: set[int]


class Producer:
    __slots__ = ("batches", "coordinator_epoch", "epoch", "first_open_offset", "timestamp")

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.batches: deque[KnownBatch] = deque(maxlen=_KEPT_BATCHES)
        self.timestamp = -1
        self.coordinator_epoch = -1
        #: Where its open transaction begins, or -1.
        self.first_open_offset = -1


class ProducerState:
    """Producers of one vnode. `check` decides before the write, `record` notes what was written."""

    __slots__ = ("_refused", "damaged", "producers", "undecided", "verifications")

    def __init__(self) -> None:
        self.producers: dict[int, Producer] = {}
        self.undecided = Undecided()
        #: Verifications of transactions that wait to begin here. They belong to this process, and are not in snapshots.
        self.verifications = Verifications()
        #: Damaged snapshots that `load` has skipped.
        self.damaged: list[str] = []
        #: By producer, the first batch that could not be written, until it is. This belongs to the process.
        self._refused: dict[int, Refused] = {}

    def refuse(self, header: BatchHeader) -> None:
        """Note that a batch could not be written. Its producer sends it again, and has others in flight behind it."""
        epoch, first = header.producer_epoch, header.base_sequence
        if first >= 0 and (header.producer_id in self._refused or len(self._refused) < MOST_PRODUCERS):
            self._refused[header.producer_id] = Refused(epoch, first, set())

    def _check_refused(self, header: BatchHeader) -> None:
        refused = self._refused.get(header.producer_id)
        if refused is None or header.producer_epoch != refused.epoch or header.base_sequence <= refused.first:
            return
        if header.base_sequence in refused.behind or len(refused.behind) == _KEPT_BATCHES:
            del self._refused[header.producer_id]  # producers repeat batches in order: this one has given up the first
            return
        refused.behind.add(header.base_sequence)
        raise StorageError(f"an earlier batch of producer {header.producer_id} was refused: it must come first")

    def check(self, header: BatchHeader) -> KnownBatch | None:
        """The batch that this one repeats, or None if it may be appended. A coordinator's batch has no sequence.

        Raises `KafkaError` INVALID_PRODUCER_EPOCH, OUT_OF_ORDER_SEQUENCE_NUMBER, or INVALID_TXN_STATE if the producer
        has a transaction open and the batch is not transactional. Raises `StorageError` for batches that were in flight
        behind one that could not be written: with OUT_OF_ORDER_SEQUENCE_NUMBER, librdkafka would take a new epoch, and
        write those batches of other partitions twice whose acknowledgement was lost.
        """
        if self._refused:
            self._check_refused(header)
        producer = self.producers.get(header.producer_id)
        if producer is None:
            return None
        known = self._repeated(header, producer)
        if known is None and producer.first_open_offset >= 0 and not header.is_transactional:
            raise KafkaError(
                ErrorCode.INVALID_TXN_STATE, f"producer {header.producer_id} has a transaction open, without this batch"
            )
        return known

    def _repeated(self, header: BatchHeader, producer: Producer) -> KnownBatch | None:
        first = header.base_sequence
        if header.producer_epoch != producer.epoch:
            if header.producer_epoch < producer.epoch:
                raise KafkaError(
                    ErrorCode.INVALID_PRODUCER_EPOCH,
                    f"producer {header.producer_id} has epoch {producer.epoch}; the batch has {header.producer_epoch}",
                )
            if first > 0:
                raise KafkaError(
                    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                    f"producer {header.producer_id} begins epoch {header.producer_epoch} with sequence {first}",
                )
            return None
        if first < 0:
            return None
        batches = producer.batches
        last = batches[-1].last_sequence if batches else -1
        if first == last + 1 or (first == 0 and last == _MAX_SEQUENCE):
            return None
        end = header.last_sequence
        for known in batches:
            if known.first_sequence == first and known.last_sequence == end:
                return known
        raise KafkaError(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"producer {header.producer_id} sent sequence {first} after {last}",
        )

    def record(self, header: BatchHeader, base_offset: int, timestamp: int) -> None:
        """Note a batch that a producer id has appended."""
        if self._refused:
            self._refused.pop(header.producer_id, None)
        producer = self.producers.get(header.producer_id)
        if producer is None:
            if len(self.producers) >= MOST_PRODUCERS:
                self._forget_one()
            producer = self.producers[header.producer_id] = Producer(header.producer_epoch)
        elif len(self.producers) > MOST_PRODUCERS // 2:  # move to the end: the first was silent for longest
            self.producers[header.producer_id] = self.producers.pop(header.producer_id)
        if producer.epoch != header.producer_epoch:
            producer.epoch = header.producer_epoch
            producer.batches.clear()
        producer.timestamp = timestamp
        first = header.base_sequence
        if first >= 0:
            producer.batches.append(
                KnownBatch(
                    first,
                    last_sequence(first, header.last_offset_delta),
                    base_offset,
                    base_offset + header.last_offset_delta,
                    timestamp,
                )
            )
        if header.is_transactional and producer.first_open_offset < 0 and header.records_count:
            producer.first_open_offset = base_offset
            self.undecided.begin(base_offset)

    # -- transactions ------------------------------------------------------------------------------------------------

    def check_marker(self, marker: Marker, *, new_epoch: bool) -> None:
        """Check that a marker may be written; `new_epoch` says that its epoch is higher than that of its batches.

        A repeated marker may be written: it ends nothing. Raises `KafkaError` INVALID_PRODUCER_EPOCH if the producer
        was fenced since or, with a new epoch, if the marker is of an earlier transaction (KIP-890, KIP-1228);
        TRANSACTION_COORDINATOR_FENCED.
        """
        producer = self.producers.get(marker.producer_id)
        if producer is None:
            return
        is_late = marker.producer_epoch < producer.epoch
        if new_epoch and producer.first_open_offset >= 0:
            is_late = marker.producer_epoch <= producer.epoch
        if is_late:
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"producer {marker.producer_id} has epoch {producer.epoch}; the marker has {marker.producer_epoch}",
            )
        if marker.coordinator_epoch < producer.coordinator_epoch:
            raise KafkaError(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"coordinator epoch {marker.coordinator_epoch}; it is {producer.coordinator_epoch}",
            )

    def aborted_by(self, marker: Marker, offset: int) -> AbortedTransaction | None:
        """The transaction that the marker, written at that offset, aborts; None if it commits, or ends nothing."""
        first = self.open_transaction(marker.producer_id)
        if marker.committed or first is None:
            return None
        others = (begun for begun in self.undecided.open() if begun != first)
        return AbortedTransaction(marker.producer_id, first, offset, next(others, offset + 1))

    def end_transaction(self, marker: Marker, offset: int, timestamp: int) -> None:
        """Note a marker that was written at that offset."""
        self.verifications.marker_written(marker.producer_id)
        self._refused.pop(marker.producer_id, None)
        producer = self.producers.get(marker.producer_id)
        if producer is None:
            return
        if producer.epoch != marker.producer_epoch:
            producer.epoch = marker.producer_epoch
            producer.batches.clear()
        producer.timestamp = timestamp
        producer.coordinator_epoch = marker.coordinator_epoch
        if producer.first_open_offset >= 0:
            self.undecided.end(producer.first_open_offset, offset)
            producer.first_open_offset = -1

    def open_transaction(self, producer_id: int) -> int | None:
        """Where the open transaction of a producer begins, None if it has none."""
        producer = self.producers.get(producer_id)
        return None if producer is None or producer.first_open_offset < 0 else producer.first_open_offset

    def in_transaction(self, producer_id: int, epoch: int) -> bool:
        """Whether a producer has a transaction open in this epoch."""
        producer = self.producers.get(producer_id)
        return producer is not None and producer.first_open_offset >= 0 and producer.epoch == epoch

    def _forget_one(self) -> None:
        for producer_id, producer in self.producers.items():
            if producer.first_open_offset < 0:
                del self.producers[producer_id]
                return

    def expire(self, now_ms: int, expiration_ms: int) -> None:
        """Forget producers without an open transaction that were silent for `expiration_ms`."""
        old = [
            producer_id
            for producer_id, producer in self.producers.items()
            if producer.first_open_offset < 0 and now_ms - producer.timestamp >= expiration_ms
        ]
        for producer_id in old:
            del self.producers[producer_id]

    def encode(self) -> bytes:
        count = 0
        body = bytearray(_COUNT.size)
        for producer_id, producer in self.producers.items():
            for known in producer.batches or (KnownBatch(-1, -1, -1, -1, -1),):
                count += 1
                body += _ENTRY.pack(
                    producer_id,
                    producer.epoch,
                    known.last_sequence,
                    known.last_offset,
                    known.last_offset - known.base_offset,
                    producer.timestamp,
                    producer.coordinator_epoch,
                    producer.first_open_offset,
                )
        _COUNT.pack_into(body, 0, count)
        return _HEAD.pack(_VERSION, crc32c(bytes(body))) + body

    def decode(self, data: bytes) -> None:
        """Replace the state by a snapshot's; ValueError when it is damaged."""
        try:
            version, crc = _HEAD.unpack_from(data)
            (count,) = _COUNT.unpack_from(data, _HEAD.size)
        except struct.error:
            raise ValueError("the snapshot is cut off") from None
        start = _HEAD.size + _COUNT.size
        if version != _VERSION or crc32c(data[_HEAD.size :]) != crc or count * _ENTRY.size != len(data) - start:
            raise ValueError("the snapshot is damaged")
        self.clear()
        for fields in _ENTRY.iter_unpack(data[start:]):
            producer_id, epoch, sequence, last_offset, delta, timestamp, coordinator_epoch, first_open = fields
            producer = self.producers.get(producer_id)
            if producer is None or producer.epoch != epoch:
                producer = self.producers[producer_id] = Producer(epoch)
            producer.timestamp = timestamp
            producer.coordinator_epoch = coordinator_epoch
            producer.first_open_offset = first_open
            if last_offset >= 0:
                first = (sequence - delta) & 0x7FFFFFFF
                producer.batches.append(KnownBatch(first, sequence, last_offset - delta, last_offset, timestamp))
        for first in sorted(p.first_open_offset for p in self.producers.values() if p.first_open_offset >= 0):
            self.undecided.begin(first)

    def clear(self) -> None:
        """Forget all producers."""
        self.producers.clear()
        self.undecided.clear()

    def save(self, io: Io, directory: str, offset: int) -> str:
        """Write the snapshot for `offset`, unsynced: its CRC tells a reader whether it is whole."""
        path = snapshot_path(directory, offset)
        write_file(io, path, self.encode(), sync=False)
        return path

    def load(self, io: Io, directory: str, end_offset: int) -> int:
        """Load the newest whole snapshot up to `end_offset`; gives the offset that it covers, or 0."""
        self.clear()
        self.damaged = []
        for offset in sorted(snapshot_offsets(io.listdir(directory)), reverse=True):
            if offset > end_offset:
                continue
            try:
                self.decode(read_file(io, snapshot_path(directory, offset)))
            except ValueError:
                self.clear()
                self.damaged.append(snapshot_path(directory, offset))
                continue
            return offset
        return 0


def snapshot_path(directory: str, offset: int) -> str:
    return os.path.join(directory, f"{offset:020d}{SUFFIX}")


def snapshot_offsets(names: list[str]) -> Iterator[int]:
    for name in names:
        if name.endswith(SUFFIX) and name[:20].isdigit():
            yield int(name[:20])
