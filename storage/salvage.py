"""Find the whole batches in a segment with damaged bytes, and set the damage aside.

Reading continues only where a batch is known to begin: at an entry of the offset index on disk, if the batch there has
a right CRC and ends with the entry's offset; after a batch whose CRC is right (which proves its length) but whose
offsets are not; at the next segment. Bytes that look like a batch are not enough: a payload may hold such bytes.

The damaged bytes are kept, synced, as `<segment>.log.damaged-<n>`, which neither Kafka nor anything here reads. Then
the whole batches are written to a new segment of the same base offset, which is synced and takes the old one's place by
`storage.replacement`. The offsets of the damaged batches become a gap.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from barnabas.storage import index
from barnabas.storage.files import OpenFile
from barnabas.storage.io import TEMPORARY_SUFFIX, Io, read_file, sync_path, write_all
from barnabas.storage.segment import INDEX_SUFFIX, LOG_SUFFIX, MAX_RELATIVE_OFFSET, Segment
from barnabas.wire import batch
from barnabas.wire.crc import crc32c
from barnabas.wire.errors import KafkaError

DAMAGED_MARK = ".damaged-"
#: The most files with damaged bytes that are kept per partition, and the most bytes in them. The oldest go first.
KEPT_FILES = 20
KEPT_BYTES = 1 << 30
ZEROS = "zeros"

_PIECE = 1 << 20
# The CRC of a batch covers its bytes from this position on.
_CRC_FROM = 21


class Damage(NamedTuple):
    """Bytes [position, end) of a segment that cannot be kept; and the first offset that they may have held."""

    position: int
    end: int
    first_offset: int
    reason: str


class _Held(NamedTuple):
    """A whole batch after a gap. The batch after it shows whether its base offset is right."""

    position: int
    header: batch.BatchHeader
    expected: int


def known_boundaries(io: Io, segment: Segment) -> list[tuple[int, int]]:
    """(position, last offset) of the batches in the offset index on disk, by position. Nothing is verified."""
    try:
        data = read_file(io, segment.path(INDEX_SUFFIX))
    except FileNotFoundError:
        return []
    size = index.OFFSET_ENTRY_SIZE
    entries = (int.from_bytes(data[at : at + size]) for at in range(0, len(data) // size * size, size))
    return sorted((entry & 0xFFFFFFFF, segment.base_offset + (entry >> 32)) for entry in entries if entry)


def whole_batches(
    io: Io,
    segment: Segment,
    file: OpenFile,
    position: int,
    expected: int,
    *,
    file_size: int,
    following: int | None,
    known: Iterable[tuple[int, int]] = (),
) -> Iterator[tuple[int, batch.BatchHeader] | Damage]:
    """Position and header of every batch from `position` on that can be kept, and the damage between them, in order.

    `expected` is the least offset that may be there, `following` the base offset of the next segment.
    """
    source = _Source(io, file, file_size)
    boundaries = list(known)
    held: _Held | None = None
    while position < file_size:
        try:
            header = source.batch(position)
        except KafkaError as error:
            if held is not None:
                yield held.position, held.header
                held = None
            if source.is_zero(position):
                yield Damage(position, file_size, expected, ZEROS)
                return
            end = _next_boundary(source, segment, boundaries, position, expected, following)
            yield Damage(position, end, expected, str(error))
            position = end
            continue
        if held is not None and held.expected <= header.base_offset < expected:
            reason = f"base offset {held.header.base_offset} before {header.base_offset}"
            yield Damage(held.position, position, held.expected, reason)
            expected, held = held.expected, None
        after = position + header.size_in_bytes
        misplaced = _misplaced(segment, header, expected, following)
        if held is not None:
            yield held.position, held.header
            held = None
        if misplaced is not None:
            yield Damage(position, after, expected, misplaced)
        elif header.base_offset > expected:
            held = _Held(position, header, expected)
            expected = header.last_offset + 1
        else:
            yield position, header
            expected = header.last_offset + 1
        position = after
    if held is not None:
        yield held.position, held.header


class _Source:
    """Checked batches of a file, read in large pieces."""

    def __init__(self, io: Io, file: OpenFile, end: int) -> None:
        self._io, self._file, self._end = io, file, end
        self._data, self._start = b"", 0

    def batch(self, position: int) -> batch.BatchHeader:
        """The header of the whole batch at `position`. Raises KafkaError."""
        at = position - self._start
        if at < 0 or at + batch.HEADER_SIZE > len(self._data):
            at = self._read(position, _PIECE)
        size = batch.parse_header(self._data, at).size_in_bytes
        if at + size > len(self._data) and size <= self._end - position:
            at = self._read(position, max(_PIECE, size))
        return batch.check(self._data, at)

    def _read(self, position: int, size: int) -> int:
        self._data = self._io.pread(self._file.fd, min(size, self._end - position), position)
        self._start = position
        return 0

    def is_zero(self, position: int) -> bool:
        """Whether only zeros follow."""
        while position < self._end:
            data = self._io.pread(self._file.fd, min(_PIECE, self._end - position), position)
            if not data or data.count(0) != len(data):
                return not data
            position += len(data)
        return True


def _misplaced(segment: Segment, header: batch.BatchHeader, expected: int, following: int | None) -> str | None:
    """Why a batch with a right CRC cannot be where it is: the CRC does not cover its offsets."""
    if header.last_offset_delta < 0:
        return f"last offset delta {header.last_offset_delta}"
    if header.base_offset < expected:
        return f"base offset {header.base_offset} after {expected - 1}"
    if following is not None and header.last_offset >= following:
        return f"last offset {header.last_offset} in a segment before {following}"
    if header.last_offset - segment.base_offset > MAX_RELATIVE_OFFSET:
        return f"last offset {header.last_offset} in segment {segment.base_offset}"
    return None


def _next_boundary(
    source: _Source,
    segment: Segment,
    boundaries: list[tuple[int, int]],
    position: int,
    expected: int,
    following: int | None,
) -> int:
    """Where the next batch begins that is known for certain, or the end of the file."""
    for start, last_offset in boundaries:
        if position < start < source._end:
            with contextlib.suppress(KafkaError):
                header = source.batch(start)
                if header.last_offset == last_offset and _misplaced(segment, header, expected, following) is None:
                    return start
    return source._end


def is_torn_batch(io: Io, file: OpenFile, damage: Damage) -> bool:
    """Whether the damage is the beginning of one batch that a power loss or a kill cut short."""
    data = io.pread(file.fd, batch.HEADER_SIZE, damage.position)
    if len(data) < batch.HEADER_SIZE:
        return True
    return batch.parse_header(data).size_in_bytes == damage.end - damage.position


def filler(base_offset: int, next_offset: int) -> bytes:
    """An empty batch that takes up the offsets up to `next_offset`, so that none of them is assigned again."""
    fields = (0, next_offset - base_offset - 1, -1, -1, -1, -1, -1, 0)
    crc = crc32c(batch.HEADER.pack(0, 0, 0, 0, 0, *fields)[_CRC_FROM:])
    length = batch.HEADER_SIZE - batch.LOG_OVERHEAD
    return batch.HEADER.pack(base_offset, length, 0, batch.MAGIC, crc, *fields)


def set_aside(io: Io, segment: Segment, file: OpenFile, start: int, end: int) -> str:
    """Keep bytes [start, end) in a file of their own, synced. Gives its name. Raises OSError."""
    kept = _kept(io, segment.directory)
    taken = {name for name, _ in kept}
    number = 1
    stem = f"{segment.base_offset:020d}{LOG_SUFFIX}{DAMAGED_MARK}"
    while f"{stem}{number}" in taken:
        if _holds(io, os.path.join(segment.directory, f"{stem}{number}"), file, start, end):
            return f"{stem}{number}"  # an earlier attempt has written it
        number += 1
    copy_ranges(io, file, [(start, end)], os.path.join(segment.directory, f"{stem}{number}"))
    sync_path(io, segment.directory)
    _prune(io, segment.directory, keep=f"{stem}{number}")
    return f"{stem}{number}"


def _kept(io: Io, directory: str) -> list[tuple[str, int]]:
    """Name and size of the files with damaged bytes, oldest first."""
    found = []
    for name in io.listdir(directory):
        if LOG_SUFFIX + DAMAGED_MARK in name and not name.endswith(TEMPORARY_SUFFIX):
            status = io.stat(os.path.join(directory, name))
            found.append((status.st_mtime_ns, name, status.st_size))
    return [(name, size) for _, name, size in sorted(found)]


def _holds(io: Io, path: str, file: OpenFile, start: int, end: int) -> bool:
    if io.stat(path).st_size != end - start:
        return False
    other = OpenFile(io, path, os.O_RDONLY)
    return all(
        io.pread(other.fd, min(_PIECE, end - at), at - start) == io.pread(file.fd, min(_PIECE, end - at), at)
        for at in range(start, end, _PIECE)
    )


def _prune(io: Io, directory: str, keep: str) -> None:
    kept = _kept(io, directory)
    total = sum(size for _, size in kept)
    for number, (name, size) in enumerate(kept):
        if name != keep and (len(kept) - number > KEPT_FILES or total > KEPT_BYTES):
            io.unlink(os.path.join(directory, name))
            total -= size


def copy_ranges(io: Io, file: OpenFile, ranges: Iterable[tuple[int, int]], target: str, *, end: bytes = b"") -> None:
    """Write the ranges of `file`, and `end`, to a new file and sync it; the file gets its name when it is whole."""
    temporary = target + TEMPORARY_SUFFIX
    fd = io.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    try:
        try:
            position = 0
            for start, stop in ranges:
                for at in range(start, stop, _PIECE):
                    data = io.pread(file.fd, min(_PIECE, stop - at), at)
                    write_all(io, fd, (data,), position)
                    position += len(data)
            if end:
                write_all(io, fd, (end,), position)
            io.fsync(fd)
        finally:
            io.close(fd)
        io.replace(temporary, target)
    except OSError:
        with contextlib.suppress(OSError):
            io.unlink(temporary)
        raise
