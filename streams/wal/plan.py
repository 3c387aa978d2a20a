"""Offsets to byte ranges of segment files: the splits that tasks read."""

from __future__ import annotations

import os
from itertools import pairwise
from typing import NamedTuple

from barnabas.storage import index
from barnabas.storage.errors import CorruptLogError
from barnabas.storage.files import OpenFile
from barnabas.storage.segment import Segment, iter_headers
from barnabas.streams.wal.errors import DataLossError, WalError
from barnabas.streams.wal.log_dir import Key, LogDir, Ranges
from barnabas.wire.batch import HEADER_SIZE, parse_header

SPLIT_BYTES = 32 << 20
# Every task costs Spark some tens of milliseconds: of much data the splits are larger, as long as there are enough.
_MAX_SPLIT_BYTES = 128 << 20
_ENOUGH_SPLITS = 16
# A rest smaller than this part of a split goes with the split before it.
_SMALL_REST = 4
_KEPT_HINTS = 4


class Split(NamedTuple):
    """Bytes [start, end) of a segment file, on batch boundaries; of their records those with lo <= offset < hi.

    Where `topic_id` is not empty, they are of the topic with that id.
    """

    topic: str
    partition: int
    path: str
    start: int
    end: int
    lo: int
    hi: int
    topic_id: str = ""


class Planner:
    """Makes splits. It remembers where the last range of a partition ended, so that the next one is found at once."""

    def __init__(self, log_dir: LogDir, *, split_bytes: int | None = None, fail_on_data_loss: bool = True) -> None:
        self._log_dir = log_dir
        self._split_bytes = split_bytes
        self._fail = fail_on_data_loss
        self._hints: dict[Key, dict[int, tuple[int, int]]] = {}  # by offset: its segment's base offset, its position

    def plan(self, ranges: Ranges) -> list[Split]:
        """The splits that hold the records of `ranges`, each of about `split_bytes`; if None, of 32 to 128 MiB.

        Raises DataLossError (unless told to go on) when records of the ranges are no longer there, WalError for a log
        that cannot be read.
        """
        whole: list[tuple[Segment, Split]] = []
        for key, (lo, hi) in ranges.items():
            if lo < hi:
                try:
                    self._partition(key, lo, hi, whole)
                except (OSError, CorruptLogError) as error:
                    raise WalError(f"{key[0]}-{key[1]} cannot be read: {error}") from None
        total = sum(split.end - split.start for _, split in whole)
        size = self._split_bytes or min(max(total // _ENOUGH_SPLITS, SPLIT_BYTES), _MAX_SPLIT_BYTES)
        return [part for segment, split in whole for part in self._cut(segment, split, size)]

    def _partition(self, key: Key, lo: int, hi: int, whole: list[tuple[Segment, Split]]) -> None:
        """The wanted part of every segment of a partition, uncut."""
        topic_id = self._log_dir.topic_id(key)
        segments = self._log_dir.segments(key)
        if self._fail and (not segments or segments[0].base_offset > lo):
            upto = min(hi, segments[0].base_offset if segments else hi)
            raise DataLossError(*key, f"offsets {lo} to {upto - 1} are gone")
        for number, segment in enumerate(segments):
            following = segments[number + 1].base_offset if number + 1 < len(segments) else None
            if segment.base_offset >= hi or (following is not None and following <= lo):
                continue
            try:
                file = OpenFile(self._log_dir.io, segment.path(), os.O_RDONLY)
            except FileNotFoundError:
                if self._fail:
                    raise DataLossError(*key, f"the segment with offset {segment.base_offset} is gone") from None
                continue
            start = self._start(key, segment, file, lo)
            end = segment.size
            if following is None or following > hi:
                end, next_batch = self._end(segment, file, hi, start)
                self._remember(key, hi, segment, next_batch)
            if start < end:
                whole.append((segment, Split(*key, segment.path(), start, end, lo, hi, topic_id)))

    def _cut(self, segment: Segment, split: Split, size: int) -> list[Split]:
        """A split in parts of about `size` bytes. Where the segment is gone meanwhile, its reader will say so."""
        ends = [split.start]
        try:
            while split.end - ends[-1] > size + size // _SMALL_REST:
                if len(ends) == 1:
                    self._load(segment)
                    file = OpenFile(self._log_dir.io, split.path, os.O_RDONLY)
                ends.append(segment.align(self._log_dir.io, file, ends[-1], ends[-1] + size, at_least_one=True))
        except FileNotFoundError:
            pass
        except (OSError, CorruptLogError) as error:
            raise WalError(f"{split.topic}-{split.partition} cannot be read: {error}") from None
        ends.append(split.end)
        return [split._replace(start=start, end=end) for start, end in pairwise(ends)]

    def _start(self, key: Key, segment: Segment, file: OpenFile, lo: int) -> int:
        if lo <= segment.base_offset:
            return 0
        base, position = self._hints.get(key, {}).get(lo, (-1, -1))
        if base == segment.base_offset and position <= segment.size:
            return position
        found = self._find(segment, file, lo, 0)
        return segment.size if found is None else found[0]

    def _remember(self, key: Key, offset: int, segment: Segment, position: int) -> None:
        """The few newest ends: a batch may be planned anew, or a shorter one than first looked at."""
        hints = self._hints.setdefault(key, {})
        hints.pop(offset, None)
        hints[offset] = segment.base_offset, position
        while len(hints) > _KEPT_HINTS:
            del hints[next(iter(hints))]

    def within_bytes(self, ranges: Ranges, max_bytes: int) -> dict[Key, tuple[int, int]]:
        """Ranges cut to about `max_bytes` of log in all, each partition's share as large as its part of the whole.

        At least one batch of each is left, so that a small limit does not stop the reader. Raises as `plan`.
        """
        splits = self.plan(ranges)
        sizes: dict[Key, int] = {}
        for split in splits:
            key = split.topic, split.partition
            sizes[key] = sizes.get(key, 0) + split.end - split.start
        total = sum(sizes.values())
        found = dict(ranges)
        if total <= max_bytes:
            return found
        left = {key: max_bytes * size // total for key, size in sizes.items()}
        for split in splits:
            key = split.topic, split.partition
            if left[key] >= split.end - split.start:
                left[key] -= split.end - split.start
            elif left[key] >= 0:
                lo, hi = ranges[key]
                found[key] = lo, min(hi, self._offset_after(split, left[key]))
                left[key] = -1
        return found

    def _offset_after(self, split: Split, size: int) -> int:
        """The offset after the batch in which the first `size` bytes of a split end."""
        try:
            file = OpenFile(self._log_dir.io, split.path, os.O_RDONLY)
            for position, header in iter_headers(self._log_dir.io, file.fd, split.start, split.end):
                if header.last_offset >= split.lo and position + header.size_in_bytes - split.start >= size:
                    return header.last_offset + 1
        except (OSError, CorruptLogError) as error:
            raise WalError(f"{split.topic}-{split.partition} cannot be read: {error}") from None
        return split.hi

    def _end(self, segment: Segment, file: OpenFile, hi: int, start: int) -> tuple[int, int]:
        """The position after the batch with the last wanted record, and that of the batch with the next one.

        They differ where one batch has both. What lies behind may be half written, and is not looked at.
        """
        found = self._find(segment, file, hi - 1, start)
        if found is None:
            return segment.size, segment.size
        position, base_offset, size = found
        if base_offset >= hi:
            return position, position
        header = parse_header(self._log_dir.io.pread(file.fd, HEADER_SIZE, position))
        return position + size, position if header.last_offset >= hi else position + size

    def _find(self, segment: Segment, file: OpenFile, offset: int, start: int) -> tuple[int, int, int] | None:
        """Position, base offset and size of the first batch from `start` on that ends at or after `offset`."""
        self._load(segment)
        assert segment.index is not None
        at = index.floor_entry(segment.index, offset - segment.base_offset)
        io = self._log_dir.io
        if at >= 0:
            entry = segment.index[at]
            position = index.position_of(entry)
            if position > start:
                try:
                    expected = segment.base_offset + (entry >> 32)
                    return segment.walk(io, file, position, offset, segment.size, expected=expected)
                except CorruptLogError:  # the index does not fit: the log itself tells
                    pass
        return segment.walk(io, file, start, offset, segment.size)

    def _load(self, segment: Segment) -> None:
        """The index as far as the broker has written it; of an active segment that is often nothing."""
        try:
            segment.load_indexes(self._log_dir.io)
        except CorruptLogError:
            segment.start()


def plan(
    log_dir: LogDir, ranges: Ranges, *, split_bytes: int | None = None, fail_on_data_loss: bool = True
) -> list[Split]:
    """The splits of `ranges`; see `Planner.plan`."""
    return Planner(log_dir, split_bytes=split_bytes, fail_on_data_loss=fail_on_data_loss).plan(ranges)
