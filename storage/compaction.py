"""Log compaction: the last record of each key stays, earlier ones are removed (KIP-58, KIP-87, KIP-534).

    plan, on the event loop: which segments, from where they are dirty, up to where they may be cleaned
    -> a thread: map the last offset of each key in the dirty range    until the map is full
    -> a thread: rewrite the next group of segments and sync it        under `.cleaned`
    -> the event loop: they take the old ones' place                   and so on, group by group

A compaction begins with `Vnode.begin_compaction`. `run` goes to a thread and touches files only. `end_compaction` puts
the new segments in place, and says whether to call `run` again.

The log is clean below `cleaned_to`: no key has two records there, as far as a pass could know. A pass cleans from there
on, so its map needs only the keys written since. If they do not all fit, the pass ends where the map is full, and the
next pass continues there.

Invariants:
- Offsets do not change. A batch keeps its base offset and its last offset. A batch whose records all go is removed. Two
  kinds stay without records: the last batch of each producer that the log remembers, which keeps the sequence, and the
  last batch of a group of segments, which keeps the offsets used.
- The log may change meanwhile: if the old segments are gone when the new ones are ready, the new ones are discarded.
- Damage is not copied: a batch with a wrong CRC ends the compaction. A batch with a right CRC whose records cannot be
  read stays as it is.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import threading
import time
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from barnabas.storage.compaction_terms import CompactionFigures, CompactionLimits, Need
from barnabas.storage.config import LONG_MAX
from barnabas.storage.errors import CorruptLogError
from barnabas.storage.io import Io, write_all
from barnabas.storage.log import Log
from barnabas.storage.segment import (
    CLEANED_SUFFIX,
    INDEX_SUFFIX,
    MAX_RELATIVE_OFFSET,
    TIME_INDEX_SUFFIX,
    Segment,
)
from barnabas.storage.transactions_cleaned import CleanedTransactions, Markers
from barnabas.storage.txn_index import SUFFIX as TXN_INDEX_SUFFIX
from barnabas.storage.txn_index import AbortedTransaction, TransactionIndex
from barnabas.storage.watermarks import Watermarks
from barnabas.wire import batch, compact
from barnabas.wire.compression import decompress
from barnabas.wire.errors import KafkaError

# Putting a larger group in place would hold the event loop up too long: three files are renamed for each segment.
_MOST_IN_GROUP = 100
_MOST_BYTES = 2**31 - 1
_BATCHES_READ, _MOST_READ = 4, 16 << 20
#: Bytes read or written by one system call. Small enough that they are still in the core's own cache for the walk.
_STEP = 64 << 10


class StoppedError(Exception):
    """The compaction was stopped."""


class Range(NamedTuple):
    """The segments that can be cleaned, each with its end; the offset from which on they are dirty; and the offset up
    to which a record may be superseded."""

    segments: list[tuple[Segment, int]]
    first_dirty: int
    upto: int


class _Replacement(NamedTuple):
    old: list[Segment]
    new: list[Segment]


def cleanable(log: Log, marks: Watermarks, cleaned_to: int, now_ms: int) -> Range:
    """The range that can be cleaned now: below the last stable offset, the active segment, and the records that are too
    young.
    """
    segments, bases = log.segments, log.bases
    count = min(len(segments) - 1, bisect_right(bases, marks.high_watermark) - 1)
    if marks.segment in segments[:count]:  # it ends at the high watermark, a position that readers use
        count = segments.index(marks.segment)
    first_dirty = cleaned_to if log.start_offset <= cleaned_to <= log.end_offset else log.start_offset
    upto = max(min(marks.last_stable_offset, bases[count]), log.start_offset)
    lag = log.config.min_compaction_lag_ms
    found = []
    for number in range(count):
        segment, end = segments[number], bases[number + 1]
        if segment.base_offset >= upto or not segment.size:
            break
        if lag > 0 and end > first_dirty and segment.newest(log.io)[0] > now_ms - lag:
            upto = min(upto, segment.base_offset)
            break
        found.append((segment, end))
    return Range(found, first_dirty, min(upto, found[-1][1]) if found else first_dirty)


def need(log: Log, found: Range, now_ms: int) -> Need:
    """How dirty the log is."""
    clean = sum(segment.size for segment, end in found.segments if end <= found.first_dirty)
    dirty = sum(segment.size for segment, end in found.segments if end > found.first_dirty < found.upto)
    return Need(clean, dirty, bool(dirty) and _is_overdue(log, found, now_ms))


def _is_overdue(log: Log, found: Range, now_ms: int) -> bool:
    lag = log.config.max_compaction_lag_ms
    if lag == LONG_MAX:
        return False
    first = next(segment for segment, end in found.segments if end > found.first_dirty)
    if first.first_timestamp is None:
        data = log.io.pread(log.cache.get(first).fd, batch.HEADER_SIZE, 0)
        if len(data) == batch.HEADER_SIZE:
            first.first_timestamp = batch.parse_header(data).max_timestamp
    return first.first_timestamp is not None and 0 <= first.first_timestamp <= now_ms - lag


def active_is_overdue(log: Log, now_ms: int) -> bool:
    """Whether the active segment holds a record older than `max.compaction.lag.ms`."""
    lag, first = log.config.max_compaction_lag_ms, log.active.first_timestamp
    return lag < LONG_MAX and bool(log.active.size) and first is not None and 0 <= first <= now_ms - lag


class LocalCompaction:
    """The `CompactionJob` of a vnode on local files."""

    def __init__(self, log: Log, found: Range, limits: CompactionLimits, now_ms: int) -> None:
        self._io, self._config, self._limits, self._now = log.io, log.config, limits, now_ms
        self._range = found
        self.figures = CompactionFigures(found.first_dirty, found.first_dirty)
        #: The segments that `run` has made, for the log to put in place; None if there are no more.
        self.made: _Replacement | None = None
        #: Everything that the map covers is clean.
        self.is_done = False
        dirty = sum(segment.size for segment, end in found.segments if end > found.first_dirty)
        self.figures.bytes_to_read = dirty + sum(segment.size for segment, _ in found.segments)
        self._buffer = memoryview(b"")
        self._read_size = max(limits.read_bytes, batch.HEADER_SIZE)
        self._targets: list[_Target] = []
        self._replaced: set[Segment] = set()
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._parts: Iterator[_Replacement] = self._compact()
        self._lasts, self._fenced = _last_batches(log)
        self._last_offsets = frozenset(memoryview(self._lasts).cast("q"))
        self._indexes = self._aborted_sources(log)
        self._began = time.monotonic()

    @staticmethod
    def _aborted_sources(log: Log) -> list[tuple[Segment, int, bytes | None]]:
        """The segments that may have aborted transactions, with their ends. The index of the active segment is taken
        now, because its file grows."""
        ends = [*log.bases[1:], log.end_offset]
        found: list[tuple[Segment, int, bytes | None]] = [
            (segment, end, None) for segment, end in zip(log.segments, ends, strict=True)
        ]
        found[-1] = (log.active, log.end_offset, log.aborted_in(log.active).encode())
        return found

    # -- for the event loop ------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """Let `run` end soon, with StoppedError."""
        self._stopped.set()

    def disown(self) -> None:
        """Like `stop`, and no file is opened by the folder's name from now on: it may soon be another topic's."""
        with self._lock:
            self._stopped.set()

    @property
    def segments(self) -> set[Segment]:
        """The segments that it reads and that are not replaced yet."""
        return {segment for segment, _ in self._range.segments} - self._replaced

    def leftovers(self) -> list[str]:
        """The files that it made and that are not in the log."""
        return [path for target in self._targets for path in target.paths]

    def placed(self) -> None:
        """The new segments are in the log."""
        if self.made is not None:
            self._replaced.update(self.made.old)
        self._targets = []

    # -- for a thread ------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Run the next part. Raises OSError, CorruptLogError, StoppedError."""
        self.made = next(self._parts, None)
        self.figures.seconds = time.monotonic() - self._began

    def _compact(self) -> Iterator[_Replacement]:
        figures = self.figures
        markers = Markers(self._io, self._indexes, self._range.first_dirty, self._range.upto)
        keys, latest = self._index(markers)
        figures.keys = keys.count
        figures.to_offset = latest + 1
        figures.is_partial = latest + 1 < self._range.upto
        transactions = CleanedTransactions(markers.aborted, markers.unproven, self._range.first_dirty)
        for group in self._groups(latest):
            yield self._rewrite(group, keys, latest, transactions)
        self.is_done = True

    def _breathe(self, count: int) -> None:
        """Wait until `count` more bytes may be read or written."""
        if self._stopped.is_set():
            raise StoppedError
        self._limits.throttle.spend(count, self._stopped.wait)

    def open_target(self, path: str) -> int:
        """Create a file in the partition's folder. Raises OSError, StoppedError."""
        with self._lock:
            if self._stopped.is_set():
                raise StoppedError
            return self._io.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)

    def _pieces(self, segment: Segment, from_offset: int) -> Iterator[tuple[memoryview, Callable[[int], None]]]:
        """The segment's bytes from the batch with `from_offset` on, piece by piece. Pieces share one buffer.

        The caller says how many bytes of a piece it has used; the next piece begins there. Raises CorruptLogError.
        """
        io = self._io
        own = Segment(segment.directory, segment.base_offset, size=segment.size)
        opened = own.open_at(io, from_offset)
        if opened is None:
            return
        file, position = opened
        done = 0

        def note(count: int) -> None:
            nonlocal done
            done = count

        while position < own.size:
            wanted = min(self._read_size, own.size - position)
            self._breathe(wanted)
            self.figures.bytes_read += wanted
            if len(self._buffer) < wanted:
                self._buffer = memoryview(bytearray(self._read_size))
            data = self._buffer[:wanted]
            found_bytes = 0
            while found_bytes < wanted and (
                count := io.pread_into(file.fd, data[found_bytes : found_bytes + _STEP], position + found_bytes)
            ):
                found_bytes += count
            if found_bytes < wanted:
                raise CorruptLogError(f"{own.path()} ends at {position + found_bytes}", segment)
            done = -1
            yield data, note
            if done < 0:
                return
            position += done
            if not done:
                if wanted == own.size - position:
                    raise CorruptLogError(f"{own.path()} ends in the batch at {position}", segment)
                # Read several such batches at a time: the part of a batch at the end of a piece is read twice.
                least = batch.size_at(data, 0)
                self._read_size = max(least, 2 * self._read_size, min(_BATCHES_READ * least, _MOST_READ))

    # -- the keys ----------------------------------------------------------------------------------------------------

    def _index(self, markers: Markers) -> tuple[compact.KeyMap, int]:
        """The map of keys, and the last offset that it covers."""
        start, upto = self._range.first_dirty, self._range.upto
        most = max(1, int(self._limits.map_bytes // compact.SLOT_BYTES * self._limits.load_factor))
        most = min(most, max(1, upto - start))
        slots = max(most + 1, int(most / min(self._limits.load_factor, 0.9)))
        keys = compact.KeyMap(slots, most, secrets.token_bytes(16))
        latest = start - 1
        for segment, end in self._range.segments:
            if end <= start:
                continue
            ended, latest = self._index_segment(segment, end, keys, latest, markers)
            if ended:
                return keys, latest
        return keys, max(latest, upto - 1)

    def _index_segment(
        self, segment: Segment, end: int, keys: compact.KeyMap, latest: int, markers: Markers
    ) -> tuple[bool, int]:
        """Add a segment's keys. Gives whether the map is full or the end is reached, and the last offset covered."""
        upto, low = self._range.upto, segment.base_offset
        start = max(self._range.first_dirty, segment.base_offset)
        for data, note in self._pieces(segment, start):
            at = 0
            while True:
                at, low, seen, status = keys.index(data, at, low, end, start, upto)
                latest = max(latest, seen)
                if status == compact.SPECIAL:
                    header = batch.parse_header(data, at)
                    full, seen = self._index_special(segment, data, at, header, start, keys, markers)
                    latest = max(latest, seen)
                    if full:
                        return True, latest
                    at, low = at + header.size_in_bytes, header.last_offset + 1
                    continue
                break
            if status == compact.FULL:
                return True, latest
            if status == compact.END:
                return True, max(latest, upto - 1)
            if status == compact.DAMAGED:
                raise CorruptLogError(f"{segment.path()}: no whole batch behind offset {latest}", segment)
            note(at)
        return False, latest

    def _index_special(
        self,
        segment: Segment,
        data: memoryview,
        at: int,
        header: batch.BatchHeader,
        start: int,
        keys: compact.KeyMap,
        markers: Markers,
    ) -> tuple[bool, int]:
        whole = data[at : at + header.size_in_bytes]
        if header.is_control:
            markers.met(header, whole, segment)
            return False, header.last_offset
        if not header.records_count or (header.is_transactional and markers.is_aborted(header)):
            return False, header.last_offset
        try:
            records = _records(header, whole)
            seen, full = keys.index_records(
                records, header.records_count, header.base_offset, header.last_offset, start
            )
        except (KafkaError, ValueError):
            return False, header.last_offset
        return full, seen

    # -- the segments ------------------------------------------------------------------------------------------------

    def _groups(self, latest: int) -> Iterator[list[tuple[Segment, int]]]:
        """Groups of successive segments that together become one of at most `segment.bytes`."""
        config = self._config
        group: list[tuple[Segment, int]] = []
        size = entries = times = 0
        for segment, end in self._range.segments:
            if segment.base_offset > latest:
                break
            more = self._size_of(segment, INDEX_SUFFIX), self._size_of(segment, TIME_INDEX_SUFFIX)
            if group and (
                size + segment.size > config.segment_bytes
                or entries + more[0] > config.segment_index_bytes
                or times + more[1] > config.segment_index_bytes
                or end - 1 - group[0][0].base_offset > MAX_RELATIVE_OFFSET
                or len(group) == _MOST_IN_GROUP
            ):
                yield group
                group, size, entries, times = [], 0, 0, 0
            group.append((segment, end))
            size, entries, times = size + segment.size, entries + more[0], times + more[1]
        if group:
            yield group

    def _size_of(self, segment: Segment, suffix: str) -> int:
        try:
            return self._io.stat(Segment(segment.directory, segment.base_offset).path(suffix)).st_size
        except FileNotFoundError:
            return 0

    def _rewrite(
        self, group: Sequence[tuple[Segment, int]], keys: compact.KeyMap, latest: int, transactions: CleanedTransactions
    ) -> _Replacement:
        figures = self.figures
        first, last = group[0][0], group[-1][0]
        modified = self._io.stat(last.path()).st_mtime_ns
        writer = _Writer(self, first.directory, first.base_offset, last.created_ms)
        try:
            ending: bytes | None = None  # the header of the last batch, if none of it was written
            for segment, end in group:
                figures.bytes_before += segment.size
                bounds = segment.base_offset, end
                for data, note in self._pieces(segment, 0):
                    done, ending, low = self._filter(segment, bounds, data, keys, latest, transactions, writer)
                    note(done)
                    bounds = low, end
            if ending is not None:
                writer.write(compact.emptied(batch.parse_header(ending)))
            kept = [entry for entry in transactions.entries_of(group) if entry.last_offset not in transactions.dropped]
            new = writer.finish(kept, modified)
        finally:
            writer.close()
        figures.segments_before += len(group)
        figures.segments_after += len(new)
        figures.bytes_after += sum(segment.size for segment in new)
        return _Replacement([segment for segment, _ in group], new)

    def _filter(
        self,
        segment: Segment,
        bounds: tuple[int, int],
        data: memoryview,
        keys: compact.KeyMap,
        latest: int,
        transactions: CleanedTransactions,
        writer: _Writer,
    ) -> tuple[int, bytes | None, int]:
        """Write the batches of a piece that stay. Their offsets must be within the bounds.

        Gives how many bytes are done, the header of the last batch if that one was removed, and the least offset that
        the next batch may have.
        """
        low, high = bounds
        figures, now = self.figures, self._now
        horizon = min(now + self._config.delete_retention_ms, LONG_MAX)
        at, ending = 0, None
        while True:
            begun = at
            out, at, low, status, dropped, read, kept, opaque = keys.filter(
                data, at, low, high, latest, now, horizon, self._lasts
            )
            figures.records_before += read
            figures.records_after += kept
            figures.unreadable += opaque
            if at > begun:
                ending = bytes(data[dropped : dropped + batch.HEADER_SIZE]) if dropped >= 0 else None
            if out:
                writer.write(out)
            if status == compact.DAMAGED:
                raise CorruptLogError(f"{segment.path()}: no whole batch at byte {at} of a piece", segment)
            if status != compact.SPECIAL:
                return at, ending, low
            header = batch.parse_header(data, at)
            whole = bytes(data[at : at + header.size_in_bytes])
            made = self._filter_special(header, whole, keys, latest, horizon, transactions)
            if made is None and self._is_last_of_producer(header):
                made = compact.emptied(header)
            if made is not None:
                writer.write(made)
            ending = whole[: batch.HEADER_SIZE] if made is None else None
            at, low = at + header.size_in_bytes, header.last_offset + 1

    def _is_last_of_producer(self, header: batch.BatchHeader) -> bool:
        if header.is_control:
            return self._fenced.get(header.producer_id) == header.producer_epoch
        return header.producer_id >= 0 and header.last_offset in self._last_offsets

    def _filter_special(
        self,
        header: batch.BatchHeader,
        whole: bytes,
        keys: compact.KeyMap,
        latest: int,
        horizon: int,
        transactions: CleanedTransactions,
    ) -> bytes | None:
        """What stays of a batch that is compressed, transactional or a marker; None if nothing does."""
        figures, now = self.figures, self._now
        if header.is_control:
            if not transactions.is_over(header, whole):
                return whole
            return _aged_marker(header, whole, now, horizon)
        aborted = header.is_transactional and transactions.is_aborted(header)
        figures.records_before += header.records_count
        if aborted or not header.records_count:
            return None
        try:
            records, count, *rest = keys.filter_records(
                _records(header, whole),
                header.records_count,
                header.base_offset,
                header.last_offset,
                header.base_timestamp,
                header.max_timestamp,
                header.attributes,
                latest,
                now,
                horizon,
            )
        except (KafkaError, ValueError):
            figures.unreadable += 1
            return whole
        figures.records_after += count
        if not count:
            return None
        return whole if records is None else compact.remade(header, records, count, *rest)


class _Target:
    """A segment that is being written, under `.cleaned`."""

    def __init__(self, job: LocalCompaction, io: Io, directory: str, base_offset: int, created_ms: int) -> None:
        self._job, self._io = job, io
        self.segment = Segment(directory, base_offset, created_ms=created_ms, mark=CLEANED_SUFFIX)
        self.segment.start()
        self.paths: list[str] = []
        self._fd = self._open(self.segment.path())

    def _open(self, path: str) -> int:
        fd = self._job.open_target(path)
        self.paths.append(path)
        return fd

    def write(self, data: bytes, interval: int) -> None:
        for at in range(0, len(data), _STEP):
            write_all(self._io, self._fd, (memoryview(data)[at : at + _STEP],), self.segment.size + at)
        self.segment.note_many(data, interval)

    def finish(self, aborted: list[AbortedTransaction], modified_ns: int) -> None:
        """Sync it with its indexes. It gets the age of its source, because retention by age uses it."""
        segment = self.segment
        segment.finish_times()
        self._io.set_modified(self._fd, modified_ns)
        self._io.fsync(self._fd)
        segment.aborted = TransactionIndex(aborted)
        for suffix, data in segment.index_files():
            if data or suffix != TXN_INDEX_SUFFIX:
                fd = self._open(segment.path(suffix))
                try:
                    if data:
                        write_all(self._io, fd, (data,), 0)
                    self._io.fsync(fd)
                finally:
                    self._io.close(fd)
        segment.indexes_written()

    def close(self) -> None:
        if self._fd >= 0:
            self._io.close(self._fd)
            self._fd = -1


class _Writer:
    """Writes batches, in order, to one segment, or to several if they do not fit into one."""

    def __init__(self, job: LocalCompaction, directory: str, base_offset: int, created_ms: int) -> None:
        self._job, self._directory, self._created_ms = job, directory, created_ms
        self._targets = [self._target(base_offset)]
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0

    def _target(self, base_offset: int) -> _Target:
        target = _Target(self._job, self._job._io, self._directory, base_offset, self._created_ms)
        self._job._targets.append(target)
        return target

    def write(self, data: bytes) -> None:
        """Write whole batches. Small ones are gathered."""
        self._waiting.append(data)
        self._waiting_bytes += len(data)
        if self._waiting_bytes >= self._job._limits.read_bytes // 2:
            self._write_out()

    def _write_out(self) -> None:
        data = self._waiting[0] if len(self._waiting) == 1 else b"".join(self._waiting)
        self._waiting, self._waiting_bytes = [], 0
        job, target = self._job, self._targets[-1]
        if target.segment.size + len(data) > _MOST_BYTES and target.segment.size:
            target = self._target(batch.parse_header(data).base_offset)
            self._targets.append(target)
        job._breathe(len(data))
        target.write(data, job._config.index_interval_bytes)

    def finish(self, aborted: list[AbortedTransaction], modified_ns: int) -> list[Segment]:
        if self._waiting:
            self._write_out()
        for number, target in enumerate(self._targets):
            following = self._targets[number + 1].segment.base_offset if number + 1 < len(self._targets) else LONG_MAX
            own = [entry for entry in aborted if target.segment.base_offset <= entry.last_offset < following]
            target.finish(own, modified_ns)
        return [target.segment for target in self._targets]

    def close(self) -> None:
        for target in self._targets:
            target.close()


def _last_batches(log: Log) -> tuple[bytes, dict[int, int]]:
    """What must stay for producers: the last offsets of their last batches, sorted, as an array of 64-bit numbers; and
    the epochs of producers that have only markers."""
    lasts, fenced = array("q"), {}
    for producer_id, producer in log.producers.producers.items():
        if producer.batches:
            lasts.append(producer.batches[-1].last_offset)
        else:
            fenced[producer_id] = producer.epoch
    return array("q", sorted(lasts)).tobytes(), fenced


def _records(header: batch.BatchHeader, whole: bytes | memoryview) -> bytes | memoryview:
    """The decompressed records of a batch. Raises KafkaError."""
    records = memoryview(whole)[batch.HEADER_SIZE :]
    return decompress(header.compression, records, batch.MAX_DECOMPRESSED) if header.compression else records


def _aged_marker(header: batch.BatchHeader, whole: bytes, now: int, horizon: int) -> bytes | None:
    """A marker whose transaction has no batches left: it gets a delete horizon, and is removed when that has passed."""
    if header.has_delete_horizon:
        return whole if now < header.base_timestamp else None
    found = list(batch.iter_records(whole))
    if not found:
        return None
    records = bytearray()
    for record in found:
        records += batch.encode_record(record, record.timestamp - horizon, record.offset - header.base_offset)
    return compact.remade(header, records, len(found), horizon, header.max_timestamp, 1)


def discard(io: Io, job: LocalCompaction) -> list[str]:
    """Give up the files that a compaction has made. Gives the names under which they wait to be deleted."""
    doomed = []
    for path in job.leftovers():
        with contextlib.suppress(OSError):
            io.replace(path, path + ".deleted")
            doomed.append(path + ".deleted")
    job.placed()
    return doomed
