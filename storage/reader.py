"""Ranges of a log for its readers: the position of a batch, what may be sent, and look-ups by time.

Raises OSError and CorruptLogError from the files.
"""

from __future__ import annotations

from bisect import bisect_right

from barnabas.storage import index
from barnabas.storage.crc_check import CrcCheck
from barnabas.storage.errors import CorruptIndexError, CorruptLogError
from barnabas.storage.files import FileSlice, OpenFile
from barnabas.storage.log import Log
from barnabas.storage.segment import Segment
from barnabas.storage.time_scan import SegmentScan
from barnabas.storage.txn_index import SUFFIX as TXN_INDEX_SUFFIX
from barnabas.storage.txn_index import AbortedTransaction
from barnabas.storage.vnode import LATER_SEGMENT
from barnabas.storage.watermarks import Watermarks
from barnabas.wire import batch
from barnabas.wire.errors import KafkaError

_KEPT_HINTS = 8
# This many bytes at the end of the log are in the page cache, as they were written lately.
_RECENT_BYTES = 8 * 1024 * 1024


class Reader:
    """Reads below the high watermark. It remembers where the next reads are likely to begin."""

    __slots__ = ("_hints", "_log", "_marks", "_recent")

    def __init__(self, log: Log, marks: Watermarks) -> None:
        self._log = log
        self._marks = marks
        self._hints: dict[int, tuple[Segment, int]] = {}
        self._recent: dict[int, bool] = {}  # offset of a recent read -> whether the batch there was verified

    def forget(self) -> None:
        """Forget positions: segments are gone or were replaced."""
        self._hints.clear()
        self._recent.clear()

    def find_slice(
        self, offset: int, max_bytes: int, min_one_batch: bool, limit: int, verified: bool
    ) -> tuple[FileSlice | None, int, CrcCheck | None, int]:
        """A range of one segment file, the readable bytes that it leaves out, the check to run before it is sent, and
        the offset behind the range.

        See `Vnode.read`; the range ends at `limit` at the latest.
        """
        log, marks = self._log, self._marks
        io = log.io
        hint = self._hints.get(offset)
        # A hint at the end of a segment is useful only while that segment grows.
        if hint is not None and hint[1] < hint[0].size:
            segment, start = hint
            file = log.cache.get(segment)
        else:
            segment, file, start = self._locate(offset)
        if limit == marks.high_watermark:
            last_segment, last_position = marks.segment, marks.position
        else:
            last_segment, _, last_position = self._locate(limit)
        if segment is last_segment:
            end = last_position
        elif segment.base_offset < last_segment.base_offset:
            end = segment.size
        else:
            return None, 0, None, offset
        readable = end
        if end - start > max_bytes:
            end = segment.align(io, file, start, start + max_bytes, at_least_one=min_one_batch)
        check = None
        if verified and segment.unchecked_until:
            known = segment.checked_end(start, end)
            if known > start:
                end = known
            elif end > start:
                check = CrcCheck(io, segment, file, start, end)
        left = readable - end if segment is last_segment else LATER_SEGMENT
        if end <= start:
            return None, left, None, offset
        self._verify(segment, file, offset, start)
        behind = limit
        if segment is marks.segment and end == marks.position:
            behind = marks.high_watermark
            self._remember(behind, segment, end)
        elif end < segment.size:
            # The reader will ask next for the batch after this range: read its base offset.
            data = io.pread(file.fd, 8, end)
            if len(data) == 8:
                behind = int.from_bytes(data)
                self._remember(behind, segment, end)
        elif segment is not log.active:
            behind = log.bases[bisect_right(log.bases, segment.base_offset)]
        recent = segment is marks.segment and marks.position - start < _RECENT_BYTES
        return FileSlice(io, file, start, end - start, cached=recent), left, check, behind

    def _remember(self, offset: int, segment: Segment, position: int) -> None:
        hints = self._hints
        hints[offset] = (segment, position)
        if len(hints) > _KEPT_HINTS:
            del hints[next(iter(hints))]

    def _locate(self, offset: int) -> tuple[Segment, OpenFile, int]:
        """Segment, file and position of the first batch that ends at or after `offset`, or of the log's end."""
        log = self._log
        number = max(bisect_right(log.bases, offset) - 1, 0)
        while True:
            segment = log.segments[number]
            file = log.cache.get(segment)
            if segment.size:
                if segment.index is None:
                    log.load_indexes(segment)
                try:
                    found = segment.find(log.io, file, offset, segment.size)
                except CorruptLogError:
                    # The index was wrong: rebuild it. If the log itself is damaged, that raises.
                    log.rebuild_indexes(segment)
                    found = segment.find(log.io, file, offset, segment.size)
                if found is not None:
                    return segment, file, found[0]
            number += 1
            if number == len(log.segments):
                return segment, file, segment.size

    def _verify(self, segment: Segment, file: OpenFile, offset: int, position: int) -> None:
        """Check a batch that is read for a second time: a wrong CRC may be the reason. Raises CorruptLogError."""
        if self._recent.get(offset):
            return
        if offset in self._recent:
            io = self._log.io
            size = batch.parse_header(io.pread(file.fd, batch.HEADER_SIZE, position)).size_in_bytes
            try:
                batch.check(io.pread(file.fd, size, position) if size > 0 else b"")
            except KafkaError as error:
                raise CorruptLogError(f"{segment.path()} at {position}: {error}", segment) from None
        self._recent[offset] = offset in self._recent
        if len(self._recent) > _KEPT_HINTS:
            del self._recent[next(iter(self._recent))]

    # -- transactions ------------------------------------------------------------------------------------------------

    def aborted_transactions(self, start: int, end: int) -> list[AbortedTransaction]:
        """The aborted transactions with offsets from `start` up to `end`, in the order of their markers.

        Raises CorruptLogError, with the segment, if an index contradicts the log.
        """
        log = self._log
        found: list[AbortedTransaction] = []
        for segment in log.aborting_from(start):
            known, index_of = len(found), log.aborted_in(segment)
            is_all = index_of.collect(start, end, found)
            for entry in found[known:]:
                if entry.last_offset not in index_of.verified:
                    self._verify_aborted(segment, entry)
                    index_of.verified.add(entry.last_offset)
            if is_all:
                break
        return found

    def aborted_limit(self, start: int, end: int, most: int) -> int:
        """The end, at most `end`, of a range from `start` with at most `most` abort markers. Raises CorruptLogError as
        above.
        """
        log = self._log
        for segment in log.aborting_from(start):
            if segment.base_offset >= end:
                break
            there, behind = log.aborted_in(segment).marker_after(start, most)
            if behind >= 0:
                return min(end, behind)
            most -= there
        return end

    def _verify_aborted(self, segment: Segment, entry: AbortedTransaction) -> None:
        """Compare an entry with the log, as the index has no CRC: the entry's marker, and a batch that may begin its
        transaction, must be where it says."""
        log = self._log
        file = log.cache.get(segment)
        place = segment.find(log.io, file, entry.last_offset, segment.size)
        if place is None or place[1] > entry.last_offset:
            return  # the marker was damaged and set aside: only the index still knows it
        data = log.io.pread(file.fd, place[2], place[0])
        try:
            marker = batch.marker_of(data) if batch.parse_header(data).is_control else None
        except KafkaError as error:
            raise CorruptLogError(f"{segment.path()} at offset {entry.last_offset}: {error}", segment) from None
        if marker is None or marker.committed or marker.producer_id != entry.producer_id:
            raise CorruptIndexError(f"{segment.path(TXN_INDEX_SUFFIX)} does not match its log", segment)
        if entry.first_offset < log.start_offset:
            return
        begin, file, at = self._locate(entry.first_offset)
        data = log.io.pread(file.fd, batch.HEADER_SIZE, at)
        header = batch.parse_header(data)
        is_begin = header.producer_id == entry.producer_id and header.is_transactional and not header.is_control
        if header.base_offset < entry.first_offset or (header.base_offset == entry.first_offset and not is_begin):
            raise CorruptIndexError(f"{segment.path(TXN_INDEX_SUFFIX)} does not match {begin.path()}", segment)

    # -- times -------------------------------------------------------------------------------------------------------

    def time_scan(self, segment: Segment, timestamp: int) -> SegmentScan | None:
        """The scan of a segment for the first readable record at or after `timestamp`; None if it cannot have one."""
        log, marks = self._log, self._marks
        io = log.io
        newest, at = segment.newest(io)
        if at >= 0 and newest < timestamp:
            return None
        file = log.cache.get(segment)
        log.load_indexes(segment)
        assert segment.times is not None
        offset = max(segment.base_offset + index.floor_time(segment.times, timestamp), log.start_offset)
        end = marks.position if segment is marks.segment else segment.size
        found = segment.find(io, file, offset, end)
        if found is None:
            return None
        return SegmentScan(io, segment, file, found[0], end, timestamp, log.start_offset, marks.high_watermark)

    def newest_timestamp(self) -> int:
        """The newest timestamp of all records; -1 if the log has no timestamps."""
        newest = -1
        for segment in self._log.segments:
            timestamp, at = segment.newest(self._log.io)
            if at >= self._log.start_offset:
                newest = max(newest, timestamp)
        return newest
