"""A vnode without files: a log in a bytearray, which counts as durable when a flush has ended.

It shows what the interface requires: nothing above storage may need more of a vnode than this.
"""

from __future__ import annotations

import socket
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple

from barnabas.storage.compaction_terms import CompactionFigures, CompactionLimits, Need
from barnabas.storage.config import LogConfig
from barnabas.storage.errors import StorageError
from barnabas.storage.faults import NotBegunError
from barnabas.storage.io import Io
from barnabas.storage.leader_epochs import LeaderEpochs
from barnabas.storage.producer_state import Producer, ProducerState
from barnabas.storage.txn_index import AbortedTransaction, TransactionIndex
from barnabas.storage.validation import Rules, Valid, check_size, validate
from barnabas.storage.verification import Verification
from barnabas.storage.vnode import (
    AppendResult,
    Callbacks,
    Check,
    CompactionJob,
    FlushJob,
    Origin,
    ReadResult,
    TimeScan,
)
from barnabas.wire import batch
from barnabas.wire.aliases import BytesLike
from barnabas.wire.compact import KeyMapInPython
from barnabas.wire.errors import ErrorCode, KafkaError


class Stored(NamedTuple):
    base_offset: int
    last_offset: int
    position: int
    size: int
    timestamp: int


class MemorySlice:
    cached = True

    def __init__(self, data: bytes) -> None:
        self._data = data

    def __len__(self) -> int:
        return len(self._data)

    def read(self) -> bytes:
        return self._data

    def send(self, sock: socket.socket) -> int:
        return sock.send(self._data)

    def first(self, size: int) -> MemorySlice:
        return MemorySlice(self._data[:size])

    def rest(self, sent: int) -> MemorySlice:
        return MemorySlice(self._data[sent:])

    def look_cached(self) -> bool:
        return True

    def warm(self) -> None:
        pass


class MemoryFlush:
    syncs, size = 1, 0
    lone_fd: int | None = None

    def __init__(self, end_offset: int) -> None:
        self.end_offset = end_offset

    def run(self) -> None:
        pass


class MemoryScan:
    def __init__(self, data: bytes, timestamp: int, lo: int, hi: int) -> None:
        self._asked = data, timestamp, lo, hi
        self.found: tuple[int, int] | None = None

    def run(self) -> None:
        data, timestamp, lo, hi = self._asked
        self.found = batch.find_time(data, timestamp, lo, hi)


class MemoryCompaction:
    """Cleans everything in one part; a second part has nothing left to do."""

    is_done = False

    def __init__(self, data: bytes, upto: int, delete_retention_ms: int, now_ms: int) -> None:
        self._data, self._upto, self._now, self._horizon = data, upto, now_ms, now_ms + delete_retention_ms
        self.figures = CompactionFigures(0, upto, bytes_before=len(data))
        self.kept: bytes | None = None

    def run(self) -> None:
        if self.kept is not None:
            self.is_done = True
            return
        keys = KeyMapInPython(1 << 20, 1 << 19, bytes(16))
        keys.index(self._data, 0, 0, 1 << 62, 0, self._upto)
        self.kept = keys.filter(self._data, 0, 0, 1 << 62, self._upto - 1, self._now, self._horizon, b"")[0]
        self.figures.bytes_after = len(self.kept)

    def stop(self) -> None:
        pass


class MemoryVnode:
    place = "memory"
    loaded = True

    def __init__(self, topic: str, partition: int, topic_id: bytes, config: LogConfig) -> None:
        self.topic, self.partition, self.topic_id = topic, partition, topic_id
        self.on_high_watermark = Callbacks()
        self.error: StorageError | None = None
        self.leader_epoch = 0
        self.log_start_offset = self.log_end_offset = self._durable = self._flushing = 0
        self._data = bytearray()
        self._batches: list[Stored] = []
        self._producers = ProducerState()
        self._aborted = TransactionIndex()
        self._epochs = LeaderEpochs("", Io())
        self.config = config

    @property
    def config(self) -> LogConfig:
        return self._config

    @config.setter
    def config(self, config: LogConfig) -> None:
        self._config = config
        self.rules = Rules.of(config)
        self._show(self._durable)

    @property
    def waits_for_fsync(self) -> bool:
        return self._config.waits_for_fsync

    @property
    def recovery_point(self) -> int:
        return self._durable

    @property
    def high_watermark(self) -> int:
        self._check()
        return self._durable

    @property
    def last_stable_offset(self) -> int:
        return max(min(self.high_watermark, self._producers.undecided.first), self.log_start_offset)

    @property
    def latest_epoch(self) -> int:
        return self._epochs.latest

    @property
    def size_bytes(self) -> int:
        return sum(stored.size for stored in self._batches)

    @property
    def segment_count(self) -> int:
        return 1

    @property
    def appended(self) -> tuple[int, int]:
        headers = [batch.parse_header(self._data, stored.position) for stored in self._batches]
        return self.size_bytes, sum(header.records_count for header in headers if not header.is_control)

    def stored_bytes(self) -> int | None:
        return self.size_bytes

    def _check(self) -> None:
        if self.error is not None:
            raise self.error

    def _show(self, offset: int) -> None:
        offset = offset if self.waits_for_fsync else self.log_end_offset
        if offset > self._durable:
            self._durable = offset
            self._producers.undecided.settle(offset)
            self.on_high_watermark.notify(self)

    # -- append ------------------------------------------------------------------------------------------------------

    def append(self, data: BytesLike, *, now_ms: int, origin: Origin = Origin.CLIENT) -> AppendResult:
        self._check()
        if origin is Origin.CLIENT:
            return self.append_valid(validate(data, self.rules, now_ms), now_ms=now_ms)
        if origin is Origin.COORDINATOR:
            check_size(len(data), self.rules)
            return self.append_valid(Valid(batch.check(data), data), now_ms=now_ms)
        first = last = -1
        for _, view in batch.iter_batches(data):
            header = batch.check(view)
            base, end = header.base_offset, self.log_end_offset
            if origin is Origin.QUERY and base != end:
                code = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
                raise KafkaError(code if header.last_offset >= end else ErrorCode.DUPLICATE_SEQUENCE_NUMBER, "not next")
            if base < end:
                raise KafkaError(ErrorCode.INVALID_RECORD, "below the log end")
            epoch = self.leader_epoch if origin is Origin.QUERY else header.partition_leader_epoch
            prefix = batch.PREFIX.pack(base, header.batch_length, epoch)
            self._write(header, prefix + view[batch.PREFIX_SIZE :], base, header.max_timestamp, epoch)
            first, last = base if first < 0 else first, header.last_offset
        return AppendResult(first, last, -1, self.log_start_offset)

    def append_valid(self, valid: Valid, *, now_ms: int) -> AppendResult:
        self._check()
        header, data, base = valid.header, valid.data, self.log_end_offset
        if header.producer_id >= 0:
            known = self._producers.check(header)
            if known is not None:
                return AppendResult(known.base_offset, known.last_offset, -1, self.log_start_offset, True)
        if self.rules.stamps:
            prefix = batch.with_append_time(header, data, base, self.leader_epoch, now_ms)
            whole = prefix + bytes(data)[batch.HEADER_SIZE :]
        else:
            whole = batch.PREFIX.pack(base, header.batch_length, self.leader_epoch) + bytes(data)[batch.PREFIX_SIZE :]
        time = now_ms if self.rules.stamps else header.max_timestamp
        self._write(header, whole, base, time, self.leader_epoch)
        if header.producer_id >= 0:
            self._producers.record(header, base, now_ms)
        append_time = now_ms if self.rules.stamps else -1
        return AppendResult(base, base + header.last_offset_delta, append_time, self.log_start_offset)

    def end_transaction(self, marker: batch.Marker, *, new_epoch: bool, now_ms: int) -> AppendResult:
        self._check()
        self._producers.check_marker(marker, new_epoch=new_epoch)
        data, base = batch.build_marker(marker, now_ms), self.log_end_offset
        aborted = self._producers.aborted_by(marker, base)
        if aborted is not None:
            self._aborted.append(aborted)
        self._producers.end_transaction(marker, base, now_ms)
        header = batch.parse_header(data)
        prefix = batch.PREFIX.pack(base, header.batch_length, self.leader_epoch)
        self._write(header, prefix + data[batch.PREFIX_SIZE :], base, now_ms, self.leader_epoch)
        return AppendResult(base, base, -1, self.log_start_offset)

    def aborted_transactions(self, start: int, end: int) -> list[AbortedTransaction]:
        found: list[AbortedTransaction] = []
        self._aborted.collect(start, end, found)
        return found

    def aborted_limit(self, start: int, end: int, most: int) -> int:
        behind = self._aborted.marker_after(start, most)[1]
        return end if behind < 0 else min(end, behind)

    def open_transaction(self, producer_id: int) -> int | None:
        return self._producers.open_transaction(producer_id)

    def in_transaction(self, producer_id: int, epoch: int) -> bool:
        return self._producers.in_transaction(producer_id, epoch)

    def begin_verification(self, verification: Verification) -> None:
        self._check()
        self._producers.verifications.begin(verification)

    def check_verification(self, verification: Verification) -> None:
        self._producers.verifications.check(verification)

    def end_verification(self, verification: Verification) -> None:
        self._producers.verifications.end(verification)

    def active_producers(self) -> Iterator[tuple[int, Producer]]:
        yield from self._producers.producers.items()

    def _write(self, header: batch.BatchHeader, data: bytes, base: int, timestamp: int, epoch: int) -> None:
        last = base + header.last_offset_delta
        self._epochs.assign(epoch, base)
        self._batches.append(Stored(base, last, len(self._data), len(data), timestamp))
        self._data += data
        self.log_end_offset = last + 1
        self._show(self._durable)

    # -- flush -------------------------------------------------------------------------------------------------------

    @property
    def unflushed_messages(self) -> int:
        return self.log_end_offset - self._flushing

    def begin_flush(self) -> MemoryFlush | None:
        self._check()
        if self._flushing == self.log_end_offset:
            return None
        self._flushing = self.log_end_offset
        return MemoryFlush(self.log_end_offset)

    def reserve(self, job: FlushJob) -> None:
        pass

    def unreserve(self) -> None:
        pass

    def end_flush(self, job: FlushJob, error: OSError | None = None) -> None:
        if isinstance(error, NotBegunError):
            self._flushing = self._durable
        elif error is not None:
            self.fail("flush", error)
        else:
            self._show(job.end_offset)

    def flush(self) -> None:
        job = self.begin_flush()
        if job is not None:
            self.end_flush(job)

    def fail(self, action: str, error: Exception) -> None:
        self.error = StorageError(f"{action} failed: {error}")
        self.on_high_watermark.notify(self)

    # -- read --------------------------------------------------------------------------------------------------------

    def read(
        self,
        offset: int,
        max_bytes: int,
        *,
        min_one_batch: bool = True,
        max_offset: int | None = None,
        verified: bool = False,
    ) -> ReadResult:
        self._check()
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise self._out_of_range(offset)
        limit = self._durable if max_offset is None else min(max_offset, self._durable)
        found, left, behind = b"", 0, offset
        for stored in self._batches if offset < limit else ():
            if stored.last_offset >= offset and stored.base_offset < limit:
                fits = len(found) + stored.size <= max_bytes or (min_one_batch and not found)
                if left or not fits:
                    left += stored.size
                else:
                    found += self._data[stored.position : stored.position + stored.size]
                    behind = stored.last_offset + 1
        piece = MemorySlice(found) if found else None
        start, stable = self.log_start_offset, self.last_stable_offset
        return ReadResult(piece, self._durable, start, stable, left, end_offset=behind)

    def _out_of_range(self, offset: int) -> KafkaError:
        return KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"offset {offset}")

    def end_check(self, check: Check) -> MemorySlice:
        raise AssertionError("no read has given one")

    def found_damage(self, offset: int, error: Exception) -> StorageError:
        return StorageError(f"offset {offset}: {error}")

    def mending_on_the_spot(self) -> AbstractContextManager[None]:
        return nullcontext()

    def newest_timestamp(self) -> int:
        self._check()
        return max((stored.timestamp for stored in self._batches), default=-1)

    def time_scans(self, timestamp: int) -> Iterator[TimeScan]:
        self._check()
        for stored in self._batches:
            if stored.timestamp >= timestamp:
                data = bytes(self._data[stored.position : stored.position + stored.size])
                yield MemoryScan(data, timestamp, self.log_start_offset, self._durable)

    def end_scan(self, scan: TimeScan) -> tuple[int, int] | None:
        assert isinstance(scan, MemoryScan)
        return scan.found

    def offset_for_timestamp(self, timestamp: int) -> tuple[int, int] | None:
        for scan in self.time_scans(timestamp):
            scan.run()
            if (found := self.end_scan(scan)) is not None:
                return found
        return None

    def epoch_end_offset(self, epoch: int) -> tuple[int, int]:
        self._check()
        return self._epochs.end_offset(epoch, self.log_end_offset)

    def epoch_of(self, offset: int) -> int:
        return max((epoch for epoch, start in self._epochs.entries if start <= offset), default=-1)

    # -- deletion ----------------------------------------------------------------------------------------------------

    def begin_at(self, offset: int) -> None:
        self._check()
        if self.log_end_offset:
            raise ValueError("there have been records")
        self.log_start_offset = self.log_end_offset = self._durable = self._flushing = offset
        self.on_high_watermark.notify(self)

    def roll(self, now_ms: int) -> None:
        self._check()

    def truncate_prefix(self, offset: int) -> None:
        self._check()
        if not 0 <= offset <= self._durable:
            raise self._out_of_range(offset)
        if offset > self.log_start_offset:
            self.log_start_offset = offset
            self._batches = [stored for stored in self._batches if stored.last_offset >= offset]
            self._epochs.truncate_start(offset)
            self.on_high_watermark.notify(self)

    def apply_retention(self, now_ms: int) -> int:
        self._check()
        config = self._config
        if not config.deletes:
            return 0
        seen = self._batches[: bisect_right([stored.last_offset for stored in self._batches], self._durable - 1)]
        excess = self.size_bytes - config.retention_bytes if config.retention_bytes >= 0 else -1
        count = 0
        for stored in seen:
            excess -= stored.size
            if excess < 0 and not 0 <= config.retention_ms < now_ms - stored.timestamp:
                break
            count += 1
        if count:
            self.truncate_prefix(seen[count - 1].last_offset + 1)
        return count

    # -- compaction --------------------------------------------------------------------------------------------------

    _cleaned_to = 0

    def may_need_compaction(self) -> bool:
        return self._config.compacts

    def compaction_need(self, now_ms: int) -> Need:
        self._check()
        if not self._config.compacts:
            return Need(0, 0, False)
        seen = [stored for stored in self._batches if stored.last_offset < self._durable]
        clean = sum(stored.size for stored in seen if stored.last_offset < self._cleaned_to)
        return Need(clean, sum(stored.size for stored in seen) - clean, False)

    def begin_compaction(self, now_ms: int, limits: CompactionLimits) -> MemoryCompaction | None:
        if not self.compaction_need(now_ms).dirty_bytes:
            return None
        data = b"".join(self._bytes_of(stored) for stored in self._batches if stored.last_offset < self._durable)
        return MemoryCompaction(data, self._durable, self._config.delete_retention_ms, now_ms)

    def _bytes_of(self, stored: Stored) -> bytes:
        return bytes(self._data[stored.position : stored.position + stored.size])

    def end_compaction(self, job: CompactionJob, error: Exception | None = None) -> bool:
        assert isinstance(job, MemoryCompaction)
        if job.is_done or error is not None or job.kept is None:
            return False
        later = [stored for stored in self._batches if stored.last_offset >= job.figures.to_offset]
        whole = job.kept + b"".join(self._bytes_of(stored) for stored in later)
        self._data, self._batches = bytearray(whole), []
        position = 0
        for header, view in batch.iter_batches(whole):
            stored = Stored(header.base_offset, header.last_offset, position, len(view), header.max_timestamp)
            self._batches.append(stored)
            position += len(view)
        self._cleaned_to = job.figures.to_offset
        return True
