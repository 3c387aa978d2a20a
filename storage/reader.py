"""Ranges of a log for its readers: where a batch lies, what of it may be sent, and where a time is.

Raises OSError and CorruptLogError from the files.
"""

from __future__ import annotations

from bisect import bisect_right

from barnabas.storage import index
from barnabas.storage.crc_check import CrcCheck
from barnabas.storage.errors import CorruptLogError
from barnabas.storage.files import FileSlice, OpenFile
from barnabas.storage.log import Log
from barnabas.storage.segment import Segment
from barnabas.storage.time_scan import SegmentScan
from barnabas.storage.vnode import LATER_SEGMENT
from barnabas.storage.watermarks import Watermarks
from barnabas.wire import batch
from barnabas.wire.errors import KafkaError

_KEPT_HINTS = 8
# What was written so lately is in the page cache.
_RECENT_BYTES = 8 * 1024 * 1024


class Reader:
    """Reads below the high watermark. It remembers where the next reads will begin."""

    __slots__ = ("_hints", "_log", "_marks", "_recent")

    def __init__(self, log: Log, marks: Watermarks) -> None:
        self._log = log
        self._marks = marks
        self._hints: dict[int, tuple[Segment, int]] = {}
        self._recent: dict[int, bool] = {}  # offsets that were read from lately; was the batch there verified?

    def forget(self) -> None:
        """Segments are gone, or are not what they were."""
        self._hints.clear()
        self._recent.clear()

    def find_slice(
        self, offset: int, max_bytes: int, min_one_batch: bool, limit: int, verified: bool
    ) -> tuple[FileSlice | None, int, CrcCheck | None]:
        """A range of one segment file, what is left of what may be read, and what is to be run before it is sent.

        See `Vnode.read`; `limit` is where it ends at the latest.
        """
        log, marks = self._log, self._marks
        io = log.io
        hint = self._hints.get(offset)
        # A hint at the end of a segment is of use only while that segment grows.
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
            return None, 0, None
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
            return None, left, None
        self._verify(segment, file, offset, start)
        if segment is marks.segment and end == marks.position:
            self._remember(marks.high_watermark, segment, end)
        elif end < segment.size:
            # The reader asks next for the batch after this range: its base offset stands there.
            data = io.pread(file.fd, 8, end)
            if len(data) == 8:
                self._remember(int.from_bytes(data), segment, end)
        recent = segment is marks.segment and marks.position - start < _RECENT_BYTES
        return FileSlice(io, file, start, end - start, cached=recent), left, check

    def _remember(self, offset: int, segment: Segment, position: int) -> None:
        hints = self._hints
        hints[offset] = (segment, position)
        if len(hints) > _KEPT_HINTS:
            del hints[next(iter(hints))]

    def _locate(self, offset: int) -> tuple[Segment, OpenFile, int]:
        """Segment, file and position of the first batch that ends at or after `offset`; else the end of the log."""
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
                    # The index misled: build it anew. If the log itself is damaged, that raises.
                    log.rebuild_indexes(segment)
                    found = segment.find(log.io, file, offset, segment.size)
                if found is not None:
                    return segment, file, found[0]
            number += 1
            if number == len(log.segments):
                return segment, file, segment.size

    def _verify(self, segment: Segment, file: OpenFile, offset: int, position: int) -> None:
        """Look at the batch from which a reader reads a second time: its CRC may be why. Raises CorruptLogError."""
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

    # -- times -------------------------------------------------------------------------------------------------------

    def time_scan(self, segment: Segment, timestamp: int) -> SegmentScan | None:
        """What to look at in a segment for the first readable record at or after `timestamp`; None for nothing."""
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
        """The newest timestamp of all records; -1 in a log without timestamps."""
        newest = -1
        for segment in self._log.segments:
            timestamp, at = segment.newest(self._log.io)
            if at >= self._log.start_offset:
                newest = max(newest, timestamp)
        return newest
