"""Reading a data directory from another process, such as Spark's workers: read-only, without an event loop.

A directory has partitions, a partition has segments, a segment has batches at positions. A `place` is a text that says
where a segment is; it can be passed between processes, and `opened` reads from it. A broker may change the directory
meanwhile: FileNotFoundError means that a segment is gone, BeingReplacedError that the files of a partition are in the
middle of a replacement. Every call that reads raises OSError, and CorruptLogError for bytes that are not a log.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from barnabas.storage import index
from barnabas.storage.checkpoints import read_properties, read_topic_id
from barnabas.storage.errors import CorruptLogError
from barnabas.storage.files import OpenFile
from barnabas.storage.io import Io, read_file
from barnabas.storage.layout import ADDRESS_FILE, META_FILE, is_locked, parse_partition_name
from barnabas.storage.producer_state import ProducerState
from barnabas.storage.recovery import kept_end, replay_producers
from barnabas.storage.segment import LOG_SUFFIX, SWAP_SUFFIX, Segment, iter_headers
from barnabas.storage.stated import Stated, read_stated
from barnabas.storage.txn_index import SUFFIX as TXN_INDEX_SUFFIX
from barnabas.storage.txn_index import AbortedTransaction, TransactionIndex
from barnabas.wire import batch
from barnabas.wire.aliases import TopicPartition

_LAST = 2**63 - 1
_SEALED = ":"


class BeingReplacedError(OSError):
    """Segments are just being replaced: try again. If no broker runs, its next start finishes the replacement."""


class Found(NamedTuple):
    """The place of a batch."""

    position: int
    base_offset: int
    size: int


class LogDirReader:
    """A data directory. Raises OSError or ValueError if `path` is not one."""

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
        """Whether a broker uses the directory."""
        return is_locked(self.path)

    def address(self) -> str | None:
        """HOST:PORT of the broker that serves the directory; None until it has written that."""
        try:
            return read_file(self._io, os.path.join(self.path, ADDRESS_FILE)).decode().strip()
        except FileNotFoundError:
            return None

    def partition(self, key: TopicPartition) -> PartitionReader:
        return PartitionReader(self._io, os.path.join(self.path, f"{key[0]}-{key[1]}"))

    def checkpoints(self) -> Stated:
        """The checkpoints of the last broker, or of its nodes."""
        return read_stated(self._io, self.path)

    def bounds(self, key: TopicPartition, segments: Sequence[SegmentReader], stated: Stated) -> tuple[int, int]:
        """The first offset of a partition, and its last stable offset in what the next start's recovery would keep.

        For a directory that no broker uses. It is computed again only when the newest segment has changed.
        """
        if not segments:
            return 0, 0
        partition = self.partition(key)
        start, point = stated.of(key, partition.topic_id()) if stated.states(key) else (0, 0)
        mark = segments[-1].mark()
        known = self._ends.get(key)
        if known is None or known[0] != mark:
            known = self._ends[key] = mark, partition.stable_end(segments, partition.kept_end(point))
        return min(max(segments[0].base_offset, start), known[1]), known[1]


class PartitionReader:
    """A partition as its files are."""

    def __init__(self, io: Io, directory: str) -> None:
        self._io = io
        self._directory = directory

    def topic_id(self) -> str:
        """The id of its topic, in URL-safe base64; empty if it has none."""
        return read_topic_id(self._io, self._directory)

    def segments(self) -> list[SegmentReader]:
        """Its segments, oldest first, with their present sizes, without those just deleted."""
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
                    status = self._io.stat(segment.path())
                except FileNotFoundError:
                    continue
                segment.size = status.st_size
                found.append(SegmentReader(self._io, segment, status.st_ino))
        return sorted(found, key=lambda found: found.base_offset)

    def aborted_transactions(self, segments: Sequence[SegmentReader], start: int, end: int) -> list[AbortedTransaction]:
        """The aborted transactions with offsets from `start` up to `end`, which is at most a last stable offset.

        If an index is not credible, the log itself is read. If an index is missing, as after a loss of power, only the
        next start of the broker notices that. Raises BeingReplacedError or FileNotFoundError if the listed segments
        are not there any more.
        """
        if not segments or not self._has_index():
            return []
        found: list[AbortedTransaction] = []
        bases = [segment.base_offset for segment in segments]
        for number in range(max(bisect_right(bases, start) - 1, 0), len(segments)):
            following = bases[number + 1] if number + 1 < len(segments) else _LAST
            if self._aborted_in(segments, number, following, end).collect(start, end, found):
                break
        return found

    def _has_index(self) -> bool:
        return any(name.endswith(TXN_INDEX_SUFFIX) for name in self._io.listdir(self._directory))

    def _aborted_in(self, segments: Sequence[SegmentReader], number: int, following: int, end: int) -> TransactionIndex:
        raw = [segment.raw for segment in segments]
        base = raw[number].base_offset
        try:
            data = read_file(self._io, raw[number].path(TXN_INDEX_SUFFIX))
            return TransactionIndex.decode(data, base, following)
        except FileNotFoundError:  # when a segment is replaced, its log goes first
            segments[number].check()
            return TransactionIndex()
        except ValueError:
            segments[number].check()
        producers = ProducerState()
        covered = max(producers.load(self._io, self._directory, base), raw[0].base_offset)
        entries = replay_producers(self._io, raw, producers, covered, min(following, end))
        return TransactionIndex(entry for entry in entries if entry.last_offset >= base)

    def stable_end(self, segments: Sequence[SegmentReader], end: int) -> int:
        """Where the oldest transaction that is open at the offset `end` begins; `end` if there is none."""
        producers = ProducerState()
        covered = producers.load(self._io, self._directory, end)
        if covered < end:
            raw = [segment.raw for segment in segments]
            for _ in replay_producers(self._io, raw, producers, max(covered, raw[0].base_offset), end):
                pass
        return min(end, producers.undecided.first)

    def kept_end(self, recovery_point: int) -> int:
        """The log end offset that recovery would give."""
        return kept_end(self._io, self._directory, recovery_point)


class SegmentReader:
    """A range of offsets from `base_offset` on, and its batches: `size` bytes.

    It reads only the file that was listed. If another file takes its place before it is opened, reads raise
    BeingReplacedError.
    """

    __slots__ = ("_inode", "_io", "_open", "_segment")

    def __init__(self, io: Io, segment: Segment, inode: int) -> None:
        self._io = io
        self._segment = segment
        self._inode = inode
        self._open: OpenFile | None = None

    @property
    def base_offset(self) -> int:
        return self._segment.base_offset

    @property
    def size(self) -> int:
        return self._segment.size

    @property
    def raw(self) -> Segment:
        return self._segment

    @property
    def place(self) -> str:
        return self._segment.path()

    def identity(self, *, sealed: bool) -> str:
        """The file's identity; another file has another one. `sealed` says that the file no longer grows."""
        return _identity(os.fstat(self._file().fd), sealed)

    def check(self) -> None:
        """Raises BeingReplacedError or FileNotFoundError if the listed file is not there any more."""
        self._check(self._io.stat(self.place))

    def _check(self, status: os.stat_result) -> None:
        if status.st_ino != self._inode:
            raise BeingReplacedError(f"another file has taken the place of {self.place}")

    def mark(self) -> tuple[str, int, int]:
        """A value that changes when the segment does."""
        status = self._io.stat(self.place)
        return self.place, status.st_size, status.st_mtime_ns

    def open(self) -> None:
        """Open the file and keep it open, even if it is deleted later. Raises FileNotFoundError if it is gone."""
        if self._open is None:
            file = OpenFile(self._io, self.place, os.O_RDONLY)
            self._check(os.fstat(file.fd))
            self._open = file

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
                except CorruptLogError:  # the index does not match: read the log itself
                    pass
        found = segment.walk(self._io, file, start, offset, segment.size)
        return None if found is None else Found(*found)

    def base_offset_at(self, position: int) -> int:
        """The base offset of the batch at `position`."""
        return int.from_bytes(self._io.pread(self._file().fd, 8, position), signed=True)

    def last_offset_at(self, position: int) -> int:
        """The last offset of the batch at `position`."""
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
        """Load the indexes as far as the broker has written them; for an active segment that is often nothing."""
        try:
            self._segment.load_indexes(self._io)
        except CorruptLogError:
            self._segment.start()


class OpenPlace:
    """A segment known by its place only: the file found there when it is opened. Its topic's id is read later."""

    def __init__(self, place: str) -> None:
        self._io = Io()
        self._directory = os.path.dirname(place)
        self._file = OpenFile(self._io, place, os.O_RDONLY)

    def topic_id(self) -> str:
        return read_topic_id(self._io, self._directory)

    def is_still(self, identity: str) -> bool:
        """Whether it is the file that had this identity."""
        return _identity(os.fstat(self._file.fd), _SEALED in identity) == identity

    def read(self, position: int, size: int) -> bytes:
        return self._io.pread(self._file.fd, size, position)

    def headers(self, start: int, end: int) -> Iterator[tuple[int, batch.BatchHeader]]:
        """Position and header of every batch from `start` to `end`."""
        yield from iter_headers(self._io, self._file.fd, start, end)


def _identity(status: os.stat_result, sealed: bool) -> str:
    """The identity of a file. Inode numbers are reused, so a sealed file's size and last change are part of it."""
    if not sealed:
        return str(status.st_ino)
    return f"{status.st_ino}{_SEALED}{status.st_mtime_ns}{_SEALED}{status.st_size}"


def partition_at(place: str) -> PartitionReader:
    """The partition to which the segment at a place belongs, or belonged."""
    return PartitionReader(Io(), os.path.dirname(place))


def opened(place: str) -> OpenPlace:
    """Open the segment at a place. Raises FileNotFoundError if it is gone, OSError."""
    return OpenPlace(place)
