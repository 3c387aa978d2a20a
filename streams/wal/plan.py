"""Offsets to byte ranges of segments: the splits that tasks read."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from barnabas.storage.errors import CorruptLogError
from barnabas.storage.log_reader import BeingReplacedError, SegmentReader, opened, partition_at
from barnabas.streams.wal.errors import DataLossError, NewTopicError, NotReadyError, WalError
from barnabas.streams.wal.log_dir import LOOK_AGAIN_SECONDS, REPLACED_SECONDS, LogDir, Ranges
from barnabas.wire.aliases import TopicPartition

SPLIT_BYTES = 32 << 20
# Every task costs Spark some tens of milliseconds: with much data, splits are larger, as long as there are enough.
_MAX_SPLIT_BYTES = 128 << 20
_ENOUGH_SPLITS = 16
# A rest smaller than this part of a split is added to the split before it.
_SMALL_REST = 4
_KEPT_HINTS = 4


class Split(NamedTuple):
    """Bytes [start, end) of a segment, on batch boundaries; of their records, those with lo <= offset < hi.

    If `topic_id` is not empty, they belong to the topic with that id. `identity` identifies the file: if it was
    replaced, the offsets tell where the records are now. `aborted` are the aborted transactions among them, as
    (producer id, first offset, last offset).
    """

    topic: str
    partition: int
    place: str
    start: int
    end: int
    lo: int
    hi: int
    topic_id: str = ""
    identity: str = ""
    aborted: tuple[tuple[int, int, int], ...] = ()


class Planner:
    """Makes splits. It remembers where a partition's last ranges ended, to find the next one at once."""

    def __init__(self, log_dir: LogDir, *, split_bytes: int | None = None, fail_on_data_loss: bool = True) -> None:
        self._log_dir = log_dir
        self._split_bytes = split_bytes
        self._fail = fail_on_data_loss
        #: By offset: its segment's base offset, that file's identity, and the position in it.
        self._hints: dict[TopicPartition, dict[int, tuple[int, str, int]]] = {}

    def plan(self, ranges: Ranges) -> list[Split]:
        """The splits with the records of `ranges`, each of about `split_bytes`; None means 32 to 128 MiB.

        Raises DataLossError (unless told to continue) if records of the ranges no longer exist, and WalError for a log
        that cannot be read.
        """
        whole: list[tuple[SegmentReader, Split]] = []
        for key, (lo, hi) in ranges.items():
            if lo < hi:
                try:
                    whole += self._partition(key, lo, hi)
                except (OSError, CorruptLogError) as error:
                    raise WalError(f"{key[0]}-{key[1]} cannot be read: {error}") from None
        total = sum(split.end - split.start for _, split in whole)
        size = self._split_bytes or min(max(total // _ENOUGH_SPLITS, SPLIT_BYTES), _MAX_SPLIT_BYTES)
        return [part for segment, split in whole for part in self._cut(segment, split, size)]

    def _partition(self, key: TopicPartition, lo: int, hi: int) -> list[tuple[SegmentReader, Split]]:
        """The wanted part of every segment of a partition, uncut. Raises NotReadyError during a replacement."""
        until = time.monotonic() + REPLACED_SECONDS
        while True:
            try:
                return self._look(key, lo, hi)
            except (BeingReplacedError, FileNotFoundError):
                if time.monotonic() > until:
                    raise NotReadyError(f"segments of {key[0]}-{key[1]} are being replaced") from None
            time.sleep(LOOK_AGAIN_SECONDS)

    def _look(self, key: TopicPartition, lo: int, hi: int) -> list[tuple[SegmentReader, Split]]:
        """Like `_partition`. Raises BeingReplacedError or FileNotFoundError if the segments change meanwhile."""
        topic_id = self._log_dir.topic_id(key)
        segments = self._log_dir.segments(key)
        aborted = self._log_dir.aborted(key, segments, lo, hi)
        if self._fail and (not segments or segments[0].base_offset > lo):
            upto = min(hi, segments[0].base_offset if segments else hi)
            raise DataLossError(*key, f"offsets {lo} to {upto - 1} are gone")
        wanted = [
            (segment, following)
            for segment, following in zip(segments, [*(each.base_offset for each in segments[1:]), None], strict=False)
            if segment.base_offset < hi and (following is None or following > lo)
        ]
        found = []
        for segment, following in wanted:
            segment.open()
            start = self._start(key, segment, lo, sealed=following is not None)
            end = segment.size
            identity = segment.identity(sealed=following is not None)
            if following is None or following > hi:
                end, next_batch = _end(segment, hi, start)
                self._remember(key, hi, (segment.base_offset, identity, next_batch))
            if start < end:
                first, last = max(lo, segment.base_offset), hi if following is None else min(hi, following)
                split = Split(*key, segment.place, start, end, first, last, topic_id, identity, aborted)
                found.append((segment, split))
            segment.close()
        for segment, _ in wanted:  # all from the same state of the log
            segment.check()
        return found

    def _cut(self, segment: SegmentReader, split: Split, size: int) -> list[Split]:
        """A split in parts of about `size` bytes. If its file was removed meanwhile, its reader will notice."""
        ends, offsets = [split.start], [split.lo]
        try:
            while split.end - ends[-1] > size + size // _SMALL_REST:
                end = segment.cut(ends[-1], size)
                if end >= split.end:
                    break
                ends.append(end)
                offsets.append(max(segment.base_offset_at(end), split.lo))
        except (BeingReplacedError, FileNotFoundError):
            pass
        except (OSError, CorruptLogError) as error:
            raise WalError(f"{split.topic}-{split.partition} cannot be read: {error}") from None
        segment.close()
        ends.append(split.end)
        offsets.append(split.hi)
        return [
            split._replace(start=start, end=end, lo=lo, hi=hi, aborted=_overlapping(split.aborted, lo, hi))
            for (start, end), (lo, hi) in zip(pairwise(ends), pairwise(offsets), strict=True)
        ]

    def _start(self, key: TopicPartition, segment: SegmentReader, lo: int, *, sealed: bool) -> int:
        if lo <= segment.base_offset:
            return 0
        base, identity, position = self._hints.get(key, {}).get(lo, (-1, "", -1))
        if base == segment.base_offset and identity == segment.identity(sealed=sealed) and position <= segment.size:
            return position
        found = segment.find(lo)
        return segment.size if found is None else found.position

    def _remember(self, key: TopicPartition, offset: int, place: tuple[int, str, int]) -> None:
        """Keep the few newest ends: a batch may be planned again, or may be shorter than first planned."""
        hints = self._hints.setdefault(key, {})
        hints.pop(offset, None)
        hints[offset] = place
        while len(hints) > _KEPT_HINTS:
            del hints[next(iter(hints))]

    def within_bytes(self, ranges: Ranges, max_bytes: int) -> dict[TopicPartition, tuple[int, int]]:
        """Ranges cut to about `max_bytes` of log in all.

        Each partition's share is proportional to its part of the whole. At least one batch of each is left, so that a
        small limit does not stop the reader. Raises like `plan`.
        """
        splits = self.plan(ranges)
        sizes: dict[TopicPartition, int] = {}
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
        """The offset after the batch that contains the end of a split's first `size` bytes."""
        try:
            for position, header in opened(split.place).headers(split.start, split.end):
                if header.last_offset >= split.lo and position + header.size_in_bytes - split.start >= size:
                    return header.last_offset + 1
        except (OSError, CorruptLogError) as error:
            raise WalError(f"{split.topic}-{split.partition} cannot be read: {error}") from None
        return split.hi


def found_again(split: Split, *, fail_on_data_loss: bool) -> list[tuple[SegmentReader, Split]]:
    """The records of a split whose file was replaced: the segments, held open, and the part in each.

    Raises DataLossError if some are gone, unless told to continue with the rest; NewTopicError if the partition belongs
    to another topic; NotReadyError.
    """
    partition = partition_at(split.place)
    until = time.monotonic() + REPLACED_SECONDS
    while True:
        try:
            segments = partition.segments()
            if fail_on_data_loss and (not segments or segments[0].base_offset > split.lo):
                raise DataLossError(split.topic, split.partition, f"offsets {split.lo} to {split.hi - 1} are gone")
            if split.topic_id and partition.topic_id() not in ("", split.topic_id):
                raise NewTopicError(split.topic, split.partition, f"offsets {split.lo} to {split.hi - 1} are gone")
            return list(_parts(segments, split))
        except (BeingReplacedError, FileNotFoundError):
            if time.monotonic() > until:
                raise NotReadyError(f"segments of {split.topic}-{split.partition} are being replaced") from None
        time.sleep(LOOK_AGAIN_SECONDS)


def _parts(segments: list[SegmentReader], split: Split) -> Iterator[tuple[SegmentReader, Split]]:
    for number, segment in enumerate(segments):
        following = segments[number + 1].base_offset if number + 1 < len(segments) else None
        if segment.base_offset >= split.hi or (following is not None and following <= split.lo):
            continue
        segment.open()
        found = segment.find(split.lo)
        start = segment.size if found is None else found.position
        end = segment.size if following is not None and following <= split.hi else _end(segment, split.hi, start)[0]
        if start < end:
            yield segment, split._replace(place=segment.place, start=start, end=end, identity="")


def _overlapping(aborted: tuple[tuple[int, int, int], ...], lo: int, hi: int) -> tuple[tuple[int, int, int], ...]:
    return tuple(each for each in aborted if each[1] < hi and each[2] >= lo) if aborted else ()


def _end(segment: SegmentReader, hi: int, start: int) -> tuple[int, int]:
    """The position after the batch with the last wanted record, and that of the batch with the next record.

    They differ if one batch has both records. Anything after them may be half written, and is not read.
    """
    found = segment.find(hi - 1, start)
    if found is None:
        return segment.size, segment.size
    position, base_offset, size = found
    if base_offset >= hi:
        return position, position
    return position + size, position if segment.last_offset_at(position) >= hi else position + size


def plan(
    log_dir: LogDir, ranges: Ranges, *, split_bytes: int | None = None, fail_on_data_loss: bool = True
) -> list[Split]:
    """The splits of `ranges`; see `Planner.plan`."""
    return Planner(log_dir, split_bytes=split_bytes, fail_on_data_loss=fail_on_data_loss).plan(ranges)
