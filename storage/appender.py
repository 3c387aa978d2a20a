"""Append batches to a log: give each origin's batches their offsets, epochs and timestamps, and write them.

Raises KafkaError for an invalid batch, which leaves the log as before. OSError and CorruptLogError from the files leave
the log as long as before.
"""

from __future__ import annotations

import contextlib

from barnabas.storage.io import write_all
from barnabas.storage.log import Log
from barnabas.storage.producer_state import KnownBatch
from barnabas.storage.segment import MAX_RELATIVE_OFFSET, Segment
from barnabas.storage.validation import Rules, Valid, check_size, validate
from barnabas.storage.vnode import AppendResult, Origin
from barnabas.wire import batch
from barnabas.wire.aliases import BytesLike
from barnabas.wire.batch import BatchHeader, Marker
from barnabas.wire.errors import ErrorCode, KafkaError

# How many offset index entries gather in memory before they are written. On disk they tell recovery where whole batches
# begin again.
_WRITTEN_ENTRIES = 16
_CONTROL = 0x20
_PREFIX_SIZE = batch.PREFIX_SIZE
_pack_prefix = batch.PREFIX.pack


class Appender:
    """The one writer of a log."""

    __slots__ = ("_log", "rules")

    def __init__(self, log: Log, rules: Rules) -> None:
        self._log = log
        self.rules = rules

    def append(self, data: BytesLike, now_ms: int, origin: Origin, leader_epoch: int) -> AppendResult:
        """Append one batch, or several from a leader. See `storage.vnode`."""
        if origin is Origin.CLIENT:
            return self.append_valid(validate(data, self.rules, now_ms), now_ms, leader_epoch)
        if origin is Origin.COORDINATOR:  # our own batch: its records need no validation, and it has no sequence
            check_size(len(data), self.rules)
            return self.append_valid(Valid(batch.check(data), data), now_ms, leader_epoch)
        if origin is Origin.QUERY:
            return self._append_given(data, now_ms, leader_epoch)
        return self._append_replicated(data, now_ms)

    def append_valid(self, valid: Valid, now_ms: int, leader_epoch: int) -> AppendResult:
        """Append one batch under the next offsets, unless it is a duplicate from its producer."""
        log = self._log
        header, data = valid.header, valid.data
        if header.producer_id >= 0 and not header.attributes & _CONTROL:
            known = log.producers.check(header)
            if known is not None:
                return self._repeated(known)
        base = log.end_offset
        append_time = now_ms if self.rules.stamps else -1
        try:
            self._write_valid(header, data, base, now_ms, leader_epoch)
        except OSError:
            if header.producer_id >= 0:
                log.producers.refuse(header)
            raise
        if header.producer_id >= 0:
            log.producers.record(header, base, now_ms)
        return AppendResult(base, base + header.last_offset_delta, append_time, log.start_offset)

    def _write_valid(self, header: BatchHeader, data: BytesLike, base: int, now_ms: int, leader_epoch: int) -> None:
        size = len(data)
        if self.rules.stamps:
            prefix = batch.with_append_time(header, data, base, leader_epoch, now_ms)
            rest = memoryview(data)[batch.HEADER_SIZE :]
            self._write(header, prefix, rest, size, base, now_ms, now_ms, leader_epoch)
        else:
            prefix = _pack_prefix(base, header.batch_length, leader_epoch)
            rest = memoryview(data)[_PREFIX_SIZE:]
            self._write(header, prefix, rest, size, base, header.max_timestamp, now_ms, leader_epoch)

    def end_transaction(self, marker: Marker, now_ms: int, leader_epoch: int, *, new_epoch: bool) -> AppendResult:
        """Append a marker. The index entry of an abort is written first, so whoever sees the marker finds the entry."""
        log = self._log
        log.producers.check_marker(marker, new_epoch=new_epoch)
        data = batch.build_marker(marker, now_ms)
        header, base = batch.parse_header(data), log.end_offset
        segment = self._segment_for(len(data), base, now_ms, now_ms)
        aborted = log.producers.aborted_by(marker, base)
        if aborted is not None:
            log.write_aborted(segment, aborted)
        prefix = _pack_prefix(base, header.batch_length, leader_epoch)
        rest = memoryview(data)[_PREFIX_SIZE:]
        self._write(header, prefix, rest, len(data), base, now_ms, now_ms, leader_epoch)
        if aborted is not None:
            segment.note_aborted(aborted)
        log.producers.end_transaction(marker, base, now_ms)
        return AppendResult(base, base, -1, log.start_offset)

    def _repeated(self, known: KnownBatch) -> AppendResult:
        append_time = known.timestamp if self.rules.stamps else -1
        return AppendResult(known.base_offset, known.last_offset, append_time, self._log.start_offset, True)

    def _append_given(self, data: BytesLike, now_ms: int, leader_epoch: int) -> AppendResult:
        """Append one batch that keeps its offsets. It must begin where the log ends; it may have gaps or no records.

        Its record count is trusted. The offsets that it covers are checked, so that no record is appended twice.
        """
        header = batch.check(data)
        if header.batch_length + 12 != len(data) or header.is_control:
            raise _invalid("a partition takes exactly one batch, and no control records")
        if header.records_count < 0 or header.last_offset_delta < max(header.records_count - 1, 0):
            raise _invalid(f"record count {header.records_count} with last offset delta {header.last_offset_delta}")
        base, end = header.base_offset, self._log.end_offset
        if base != end:
            covered = header.last_offset < end
            raise KafkaError(
                ErrorCode.DUPLICATE_SEQUENCE_NUMBER if covered else ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"the batch covers offsets {base} to {header.last_offset}; the log ends at {end}",
            )
        prefix = _pack_prefix(base, header.batch_length, leader_epoch)
        with memoryview(data) as view:
            rest = view[_PREFIX_SIZE:]
            self._write(header, prefix, rest, len(data), base, header.max_timestamp, now_ms, leader_epoch)
        return AppendResult(base, header.last_offset, -1, self._log.start_offset)

    def _append_replicated(self, data: BytesLike, now_ms: int) -> AppendResult:
        """Append a leader's batches. Length and CRC are checked; offsets, epochs and timestamps are kept."""
        log = self._log
        first = last = -1
        for found, view in batch.iter_batches(data):
            header = batch.check(view)
            base, epoch = header.base_offset, header.partition_leader_epoch
            if base < log.end_offset or found.last_offset_delta < 0:
                raise _invalid(f"offset {base} is below the log end {log.end_offset}")
            prefix, rest = bytes(view[:_PREFIX_SIZE]), view[_PREFIX_SIZE:]
            self._write(header, prefix, rest, len(view), base, header.max_timestamp, now_ms, epoch)
            if header.producer_id >= 0:
                self._note_replicated(header, view)
            if first < 0:
                first = base
            last = header.last_offset
        if first < 0:
            raise _invalid("no whole batch")
        return AppendResult(first, last, -1, log.start_offset)

    def _note_replicated(self, header: BatchHeader, data: BytesLike) -> None:
        log = self._log
        marker = batch.marker_of(data) if header.is_control else None
        if marker is None:
            if not header.is_control:
                log.producers.record(header, header.base_offset, header.max_timestamp)
            return
        aborted = log.producers.aborted_by(marker, header.base_offset)
        if aborted is not None:
            log.write_aborted(log.active, aborted)
            log.active.note_aborted(aborted)
        log.producers.end_transaction(marker, header.base_offset, header.max_timestamp)

    def _write(
        self,
        header: BatchHeader,
        prefix: bytes,
        rest: memoryview,
        size: int,
        base: int,
        timestamp: int,
        now_ms: int,
        leader_epoch: int,
    ) -> None:
        """Write one batch at the end of the active segment. If a roll is due, roll first."""
        log = self._log
        config = log.config
        segment = log.active
        last = base + header.last_offset_delta
        if size > config.segment_bytes:
            raise KafkaError(
                ErrorCode.RECORD_LIST_TOO_LARGE, f"{size} bytes in a topic with segment.bytes={config.segment_bytes}"
            )
        try:
            segment = self._segment_for(size, last, timestamp, now_ms)
            if leader_epoch > log.epochs.latest:
                log.epochs.begin(leader_epoch, base)
                log.unflushed.paths += [log.epochs.path, log.directory]
            file = segment.file
            if file is None:
                file = log.cache.get(segment)
            segment.used = segment.dirty = True
            position = segment.size
            if log.io.pwritev(file.fd, (prefix, rest), position) != size:
                # Short: the disk may be full. Write again from the start of the batch; the same bytes are harmless.
                write_all(log.io, file.fd, (prefix, rest), position)
        except OSError:
            self._cut_torn_batch(segment)
            raise
        if segment.first_timestamp is None:
            segment.first_timestamp = timestamp
        indexed = segment.note(last, size, timestamp, config.index_interval_bytes)
        if indexed and segment.unwritten_entries >= _WRITTEN_ENTRIES:
            with contextlib.suppress(OSError):  # they stay in memory
                segment.write_indexes(log.io)
        log.unflushed.size += size
        log.end_offset = last + 1
        if not header.is_control:
            log.appended_bytes += size
            log.appended_records += header.records_count

    def _segment_for(self, size: int, last: int, timestamp: int, now_ms: int) -> Segment:
        """The segment for a batch of `size` bytes up to offset `last`; a new one if a roll is due."""
        log = self._log
        segment = log.active
        if segment.index is None:
            log.load_indexes(segment)
        if self._roll_is_due(segment, size, last, timestamp, now_ms):
            return log.roll(log.end_offset, now_ms)
        return segment

    def _cut_torn_batch(self, segment: Segment) -> None:
        """Try to cut half a batch off: other readers of the file should not see it. The next append overwrites it."""
        segment.reserved = 0
        if segment.file is not None:
            try:
                self._log.io.ftruncate(segment.file.fd, segment.size)
            except OSError:
                pass

    def _roll_is_due(self, segment: Segment, size: int, last: int, timestamp: int, now_ms: int) -> bool:
        if last - segment.base_offset > MAX_RELATIVE_OFFSET:
            return True
        if not segment.size:
            return False
        config = self._log.config
        if segment.size + size > config.segment_bytes:
            return True
        first = segment.first_timestamp
        if first is not None and first >= 0 and timestamp >= 0:
            waited = timestamp - first
        else:
            waited = now_ms - segment.created_ms
        return waited > config.segment_ms or segment.indexes_full(config.segment_index_bytes)


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_RECORD, message)
