"""The door for readers of a data directory from another process, such as Spark's workers: read-only, no event loop.

A directory has partitions, a partition has segments, a segment has batches at positions. A `place` is a text that says
where a segment is: it goes from process to process, and `opened` reads from it. What a broker does meanwhile shows as
FileNotFoundError where a segment is gone, and as BeingReplacedError where the files of a partition are neither those
before nor those after a replacement. All that reads raises OSError, and CorruptLogError for what is no log.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from barnabas.storage import index
from barnabas.storage.checkpoints import Checkpoints, read_checkpoints, read_properties, read_topic_id
from barnabas.storage.errors import CorruptLogError
from barnabas.storage.files import OpenFile
from barnabas.storage.io import Io, read_file
from barnabas.storage.layout import ADDRESS_FILE, META_FILE, is_locked, parse_partition_name
from barnabas.storage.recovery import kept_end
from barnabas.storage.segment import LOG_SUFFIX, SWAP_SUFFIX, Segment, iter_headers
from barnabas.wire import batch
from barnabas.wire.aliases import TopicPartition


class BeingReplacedError(OSError):
    """Segments are taking the place of others: asking again helps. If no broker runs, its next start finishes it."""


class Found(NamedTuple):
    """Where a batch is."""

    position: int
    base_offset: int
    size: int


class LogDirReader:
    """A data directory. Raises OSError or ValueError when `path` is none."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._io = Io()
        self._ends: dict[TopicPartition, tuple[tuple[str, int, int], int]] = {}
        self.cluster_id = read_properties(self._io, os.path.join(path, META_FILE)).get("cluster.id", "")

    def partitions(self) -> Iterator[TopicPartition]:
        """Every partition."""
        for name in self._io.listdir(self.path):
            key = parse_partition_name(name)
            if key is not None and os.path.isdir(os.path.join(self.path, name)):
                yield key

    def is_served(self) -> bool:
        """Whether a broker has the directory."""
        return is_locked(self.path)

    def address(self) -> str | None:
        """HOST:PORT of the broker that serves the directory, None until it says so."""
        try:
            return read_file(self._io, os.path.join(self.path, ADDRESS_FILE)).decode().strip()
        except FileNotFoundError:
            return None

    def partition(self, key: TopicPartition) -> PartitionReader:
        return PartitionReader(self._io, os.path.join(self.path, f"{key[0]}-{key[1]}"))

    def checkpoints(self) -> Checkpoints:
        """What the last broker has stated of the partitions."""
        return read_checkpoints(self._io, self.path)

    def bounds(self, key: TopicPartition, segments: Sequence[SegmentReader], stated: Checkpoints) -> tuple[int, int]:
        """The first offset of a partition, and the end that the next start's recovery would keep.

        For a directory that no broker has. Looked for again only when the newest segment has changed.
        """
        if not segments:
            return 0, 0
        partition = self.partition(key)
        start, point = stated.of(key, partition.topic_id()) if stated.states(key) else (0, 0)
        mark = segments[-1].mark()
        known = self._ends.get(key)
        if known is None or known[0] != mark:
            known = self._ends[key] = mark, partition.kept_end(point)
        return min(max(segments[0].base_offset, start), known[1]), known[1]


class PartitionReader:
    """A partition as it lies there."""

    def __init__(self, io: Io, directory: str) -> None:
        self._io = io
        self._directory = directory

    def topic_id(self) -> str:
        """Of its topic, in URL-safe base64; nothing where it has none."""
        return read_topic_id(self._io, self._directory)

    def segments(self) -> list[SegmentReader]:
        """Its segments, oldest first, with the sizes that they have now; those just deleted left out."""
        found = []
        try:
            names = self._io.listdir(self._directory)
        except FileNotFoundError:
            return []
        for name in names:
            if name.endswith(LOG_SUFFIX + SWAP_SUFFIX):
                raise BeingReplacedError(f"segments of {self._directory} are being replaced")
            if name.endswith(LOG_SUFFIX) and name[:20].isdigit() and len(name) == 24:
                segment = Segment(self._directory, int(name[:20]))
                try:
                    segment.size = self._io.stat(segment.path()).st_size
                except FileNotFoundError:
                    continue
                found.append(segment)
        return [SegmentReader(self._io, segment) for segment in sorted(found, key=lambda found: found.base_offset)]

    def kept_end(self, recovery_point: int) -> int:
        """The log end offset that recovery would give."""
        return kept_end(self._io, self._directory, recovery_point)


class SegmentReader:
    """A range of offsets from `base_offset` on, and the batches that hold them: `size` bytes."""

    __slots__ = ("_io", "_open", "_segment")

    def __init__(self, io: Io, segment: Segment) -> None:
        self._io = io
        self._segment = segment
        self._open: OpenFile | None = None

    @property
    def base_offset(self) -> int:
        return self._segment.base_offset

    @property
    def size(self) -> int:
        return self._segment.size

    @property
    def place(self) -> str:
        return self._segment.path()

    def mark(self) -> tuple[str, int, int]:
        """Changes when the segment does."""
        status = self._io.stat(self.place)
        return self.place, status.st_size, status.st_mtime_ns

    def open(self) -> None:
        """Hold it open from now on, whatever becomes of it: FileNotFoundError if it is gone."""
        if self._open is None:
            self._open = OpenFile(self._io, self.place, os.O_RDONLY)

    def close(self) -> None:
        self._open = None

    def _file(self) -> OpenFile:
        self.open()
        assert self._open is not None
        return self._open

    def find(self, offset: int, start: int = 0) -> Found | None:
        """The first batch from position `start` on that ends at or after `offset`."""
        segment, file = self._segment, self._file()
        self._load()
        assert segment.index is not None
        at = index.floor_entry(segment.index, offset - segment.base_offset)
        found = None
        if at >= 0:
            entry = segment.index[at]
            position = index.position_of(entry)
            if position > start:
                try:
                    expected = segment.base_offset + (entry >> 32)
                    found = segment.walk(self._io, file, position, offset, segment.size, expected=expected)
                    return None if found is None else Found(*found)
                except CorruptLogError:  # the index does not fit: the log itself tells
                    pass
        found = segment.walk(self._io, file, start, offset, segment.size)
        return None if found is None else Found(*found)

    def last_offset_at(self, position: int) -> int:
        """The last offset of the batch there."""
        data = self._io.pread(self._file().fd, batch.HEADER_SIZE, position)
        return batch.parse_header(data).last_offset

    def cut(self, start: int, size: int) -> int:
        """Where a range of about `size` bytes from the batch at `start` ends: after one batch at least."""
        file = self._file()
        self._load()
        return self._segment.align(self._io, file, start, start + size, at_least_one=True)

    def headers(self, start: int, end: int) -> Iterator[tuple[int, batch.BatchHeader]]:
        """Position and header of every batch from `start` to `end`."""
        file = self._file()
        yield from iter_headers(self._io, file.fd, start, end)

    def read(self, position: int, size: int) -> bytes:
        return self._io.pread(self._file().fd, size, position)

    def floor_time(self, timestamp: int) -> int:
        """The offset from which to look for the first record at or after `timestamp`."""
        self._load()
        assert self._segment.times is not None
        return self.base_offset + index.floor_time(self._segment.times, timestamp)

    def _load(self) -> None:
        """The indexes as far as the broker has written them; of an active segment that is often nothing."""
        try:
            self._segment.load_indexes(self._io)
        except CorruptLogError:
            self._segment.start()


class OpenPlace:
    """A segment by its place alone. It is the one that is there when it is opened, with its topic's id as of later."""

    def __init__(self, place: str) -> None:
        self._io = Io()
        self._directory = os.path.dirname(place)
        self._file = OpenFile(self._io, place, os.O_RDONLY)

    def topic_id(self) -> str:
        return read_topic_id(self._io, self._directory)

    def read(self, position: int, size: int) -> bytes:
        return self._io.pread(self._file.fd, size, position)

    def headers(self, start: int, end: int) -> Iterator[tuple[int, batch.BatchHeader]]:
        """Position and header of every batch from `start` to `end`."""
        yield from iter_headers(self._io, self._file.fd, start, end)


def opened(place: str) -> OpenPlace:
    """Raises FileNotFoundError where the segment is gone, OSError."""
    return OpenPlace(place)
