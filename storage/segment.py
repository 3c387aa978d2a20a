"""One segment of a log: a `.log` file of batches and its two indexes, which can be rebuilt from it."""

from __future__ import annotations

import contextlib
import os
import struct
from array import array
from collections.abc import Iterator

from barnabas.storage import index
from barnabas.storage.errors import CorruptIndexError, CorruptLogError
from barnabas.storage.files import OpenFile
from barnabas.storage.io import Io, read_file, write_all, write_file
from barnabas.storage.txn_index import MOST_ENTRIES, AbortedTransaction, TransactionIndex, encode_entry
from barnabas.storage.txn_index import SUFFIX as TXN_INDEX_SUFFIX
from barnabas.wire import batch, compact
from barnabas.wire.aliases import BytesLike

LOG_SUFFIX = ".log"
# The most ranges of checked batches that a segment remembers; others are checked again.
_KEPT_CHECKED = 64
# Zeros behind a segment's end for appends to overwrite: as many as it has bytes, but at most this many, rounded up to a
# whole page; none if fewer than _RESERVED_APPENDS appends would fit.
_RESERVED_BYTES = 64 * 1024
_PAGE = 4096
_RESERVED_APPENDS = 8
INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
#: The last one exists only if transactions were aborted.
INDEX_SUFFIXES = (INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX)
DELETED_SUFFIX = ".deleted"
#: Suffixes of a segment's file names while it is made, and while it takes the place of others.
CLEANED_SUFFIX = ".cleaned"
SWAP_SUFFIX = ".swap"
MAX_RELATIVE_OFFSET = 2**31 - 1

_SCAN_CHUNK = 4096
_MAX_SCAN_CHUNK = 256 * 1024
# Base offset, length, last offset delta: enough to walk from batch to batch.
_WALK = struct.Struct(">qi11xi")
_WALK_SIZE = _WALK.size


class Segment:
    """Offsets from `base_offset` on. `size` is the length of the valid log; the file may be longer.

    If `reserved` is more than `size`, the bytes between them are zeros.
    """

    __slots__ = (
        "_bytes_since_entry",
        "_index_written",
        "_last_indexed_time",
        "_times_written",
        "aborted",
        "base_offset",
        "checked",
        "created_ms",
        "directory",
        "dirty",
        "file",
        "first_timestamp",
        "has_new_indexes",
        "index",
        "mark",
        "max_timestamp",
        "max_timestamp_offset",
        "reserved",
        "size",
        "times",
        "unchecked_until",
        "used",
    )

    def __init__(self, directory: str, base_offset: int, *, size: int = 0, created_ms: int = 0, mark: str = "") -> None:
        self.directory = directory
        #: The suffix of all its file names: CLEANED_SUFFIX, SWAP_SUFFIX, or empty once it is part of the log.
        self.mark = mark
        self.base_offset = base_offset
        self.size = size
        self.reserved = 0
        #: Bytes before this were there when the process began; and the ranges of them whose CRCs were checked since.
        self.unchecked_until = 0
        self.checked: list[tuple[int, int]] = []
        self.created_ms = created_ms
        self.file: OpenFile | None = None
        self.used = False  # since the cache last checked
        self.dirty = False  # holds bytes that no flush has taken over yet
        self.index: array[int] | None = None
        self.times: bytearray | None = None
        #: The transactions whose abort markers are in it; None until read.
        self.aborted: TransactionIndex | None = None
        #: The index files were written since this process opened them.
        self.has_new_indexes = False
        self._index_written = 0
        self._times_written = 0
        self._bytes_since_entry = 0
        self._last_indexed_time = -1
        self.first_timestamp: int | None = None
        #: The newest timestamp so far, and the last offset of its batch; None until known.
        self.max_timestamp: int | None = None
        self.max_timestamp_offset = base_offset

    def path(self, suffix: str = LOG_SUFFIX) -> str:
        return os.path.join(self.directory, f"{self.base_offset:020d}{suffix}{self.mark}")

    # -- checked ranges ----------------------------------------------------------------------------------------------

    def checked_end(self, start: int, end: int) -> int:
        """How far from `start`, to at most `end`, the CRCs are known to be right."""
        if start >= self.unchecked_until:
            return end
        for low, high in self.checked:
            if low <= start < high:
                return end if high >= self.unchecked_until else min(high, end)
        return start

    def note_checked(self, start: int, end: int) -> None:
        """Note that the CRCs of the batches from `start` to `end` are right."""
        apart = []
        for low, high in self.checked:
            if high < start or low > end:
                apart.append((low, high))
            else:
                start, end = min(start, low), max(end, high)
        self.checked = [*apart[-_KEPT_CHECKED:], (start, end)]
        if start == 0 and end >= self.unchecked_until:
            self.checked, self.unchecked_until = [], 0

    # -- writing -----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin an empty segment: its indexes are known without reading."""
        self.index = array("Q")
        self.times = bytearray()
        self.max_timestamp = self._last_indexed_time = -1
        self._index_written = self._times_written = 0
        self._bytes_since_entry = 0

    def note(self, last_offset: int, size: int, timestamp: int, interval: int) -> bool:
        """Count the batch just written at the end of the log, and index it if `interval` bytes have passed.

        Gives whether it was indexed.
        """
        position = self.size
        indexed = self._bytes_since_entry > interval
        if timestamp > self.max_timestamp:  # type: ignore[operator]
            self.max_timestamp = timestamp
            self.max_timestamp_offset = last_offset
        if indexed:
            self.index.append((last_offset - self.base_offset) << 32 | position)  # type: ignore[union-attr]
            self._index_time()
            self._bytes_since_entry = 0
        self._bytes_since_entry += size
        self.size = position + size
        return indexed

    def note_many(self, data: BytesLike, interval: int) -> None:
        """Like `note`, for several whole batches written together at the end of the log."""
        assert self.index is not None
        assert self.times is not None
        assert self.max_timestamp is not None
        entries, times, *rest = compact.index_batches(
            data,
            self.base_offset,
            self.size,
            interval,
            self._bytes_since_entry,
            self.max_timestamp,
            self.max_timestamp_offset,
            self._last_indexed_time,
        )
        self._bytes_since_entry, self.max_timestamp, self.max_timestamp_offset, self._last_indexed_time = rest
        self.index.frombytes(entries)
        self.times += times
        self.size += len(data)

    def reserve(self, io: Io, size: int) -> None:
        """If no zeros are left behind the log, write some for appends of about `size` bytes to overwrite.

        If an append does not make its file longer, its fdatasync writes no metadata (docs/decisions/0005). If there is
        no room for zeros, that is harmless.
        """
        end = -(-(self.size + min(self.size, _RESERVED_BYTES)) // _PAGE) * _PAGE
        if self.reserved > self.size or size * _RESERVED_APPENDS > end - self.size:
            return
        assert self.file is not None
        self.reserved = end
        with contextlib.suppress(OSError):
            io.pwritev(self.file.fd, (bytes(end - self.size),), self.size)

    def release(self, io: Io, file: OpenFile) -> None:
        """Cut the file to the log's end."""
        if self.reserved > self.size:
            io.ftruncate(file.fd, self.size)
        self.reserved = 0

    def _index_time(self) -> None:
        assert self.times is not None
        assert self.max_timestamp is not None
        if self.max_timestamp > self._last_indexed_time:
            self.times += index.TIME_ENTRY.pack(self.max_timestamp, self.max_timestamp_offset - self.base_offset)
            self._last_indexed_time = self.max_timestamp

    def indexes_full(self, limit_bytes: int) -> bool:
        """Whether an index has no room for one more entry: Kafka rolls then."""
        offsets, times = len(self.index), len(self.times)  # type: ignore[arg-type]
        if self.aborted is not None and len(self.aborted) >= MOST_ENTRIES:
            return True
        return (offsets + 1) * index.OFFSET_ENTRY_SIZE > limit_bytes or times + 2 * index.TIME_ENTRY.size > limit_bytes

    def finish(self, io: Io) -> None:
        """Bring the index files up to date, with a last entry for the newest timestamp. For roll and close."""
        if self.index is None or self.times is None:
            return
        self.finish_times()
        self.write_indexes(io)

    def finish_times(self) -> None:
        """Index the newest timestamp, even if no interval has passed."""
        if self.size and self.max_timestamp is not None:
            self._index_time()

    @property
    def unwritten_entries(self) -> int:
        return 0 if self.index is None else len(self.index) - self._index_written

    def write_indexes(self, io: Io) -> None:
        """Append the entries that are only in memory."""
        if self.index is not None and self._index_written < len(self.index):
            data = index.encode_offsets(self.index[self._index_written :])
            self._append(io, INDEX_SUFFIX, data, self._index_written * index.OFFSET_ENTRY_SIZE)
            self._index_written = len(self.index)
        if self.times is not None and self._times_written < len(self.times):
            self._append(io, TIME_INDEX_SUFFIX, bytes(self.times[self._times_written :]), self._times_written)
            self._times_written = len(self.times)

    def write_aborted(self, io: Io, entry: AbortedTransaction) -> bool:
        """Write the entry of the marker that comes next; whether that created the file. The marker makes it count."""
        assert self.aborted is not None
        self._append(io, TXN_INDEX_SUFFIX, encode_entry(entry), self.aborted.size_bytes)
        return not self.aborted

    def note_aborted(self, entry: AbortedTransaction) -> None:
        """Note that the entry's marker is written."""
        assert self.aborted is not None
        self.aborted.append(entry)
        self.aborted.verified.add(entry.last_offset)

    def load_aborted(self, io: Io, end: int) -> TransactionIndex:
        """The index of a segment up to the offset `end`. Raises CorruptIndexError if its file is not credible."""
        if self.aborted is None:
            try:
                self.aborted = TransactionIndex.decode(
                    read_file(io, self.path(TXN_INDEX_SUFFIX)), self.base_offset, end
                )
            except FileNotFoundError:
                self.aborted = TransactionIndex()
            except ValueError as error:
                raise CorruptIndexError(f"{self.path(TXN_INDEX_SUFFIX)}: {error}", self) from None
        return self.aborted

    def replace_aborted(self, io: Io, found: TransactionIndex, *, sync: bool) -> bool:
        """Replace the file's entries by these; whether that changed the file."""
        self.aborted = found
        path, data = self.path(TXN_INDEX_SUFFIX), found.encode()
        try:
            if read_file(io, path) == data:
                return False
        except FileNotFoundError:
            if not data:
                return False
        if data:
            write_file(io, path, data, sync=False, sync_data=sync)
        else:
            io.unlink(path)
        return True

    def _append(self, io: Io, suffix: str, data: bytes, position: int) -> None:
        self.has_new_indexes = True
        fd = io.open(self.path(suffix), os.O_WRONLY | os.O_CREAT)
        try:
            write_all(io, fd, (data,), position)
        finally:
            io.close(fd)

    def index_paths(self) -> list[str]:
        """The index files that exist, to be synced."""
        paths = [self.path(INDEX_SUFFIX), self.path(TIME_INDEX_SUFFIX)]
        return [*paths, self.path(TXN_INDEX_SUFFIX)] if self.aborted else paths

    def indexes_are_on_disk(self, io: Io) -> bool:
        """Whether the index files hold exactly the entries in memory."""
        assert self.index is not None
        assert self.times is not None
        try:
            return (
                read_file(io, self.path(INDEX_SUFFIX)) == index.encode_offsets(self.index)
                and read_file(io, self.path(TIME_INDEX_SUFFIX)) == self.times
            )
        except FileNotFoundError:
            return False

    def index_files(self) -> list[tuple[str, bytes]]:
        """The wanted content of the index files, by suffix, of a segment whose indexes are in memory."""
        assert self.index is not None
        assert self.times is not None
        assert self.aborted is not None
        return [
            (INDEX_SUFFIX, index.encode_offsets(self.index)),
            (TIME_INDEX_SUFFIX, bytes(self.times)),
            (TXN_INDEX_SUFFIX, self.aborted.encode()),
        ]

    def indexes_written(self) -> None:
        """Note that the files hold the entries in memory."""
        assert self.index is not None
        assert self.times is not None
        self._index_written = len(self.index)
        self._times_written = len(self.times)

    def replace_indexes(self, io: Io, *, sync: bool = True) -> None:
        """Rewrite both index files, as recovery does. The caller syncs their names."""
        assert self.index is not None
        assert self.times is not None
        self.has_new_indexes = True
        write_file(io, self.path(INDEX_SUFFIX), index.encode_offsets(self.index), sync=False, sync_data=sync)
        write_file(io, self.path(TIME_INDEX_SUFFIX), bytes(self.times), sync=False, sync_data=sync)
        self.indexes_written()

    # -- reading -----------------------------------------------------------------------------------------------------

    def load_indexes(self, io: Io) -> None:
        """Read both index files. Raises `CorruptLogError` if one is absent or not credible."""
        if self.index is not None:
            return
        try:
            data = read_file(io, self.path(INDEX_SUFFIX))
            times_data = read_file(io, self.path(TIME_INDEX_SUFFIX))
            entries = index.decode_offsets(data, self.size)
            times = index.decode_times(times_data)
        except (FileNotFoundError, ValueError) as error:
            raise CorruptLogError(f"{self.path(INDEX_SUFFIX)}: {error}", self) from None
        self.index = entries
        self.times = times
        self._index_written = len(entries)
        self._times_written = len(times)
        if times:
            last, relative = index.time_entry(times, len(times) // index.TIME_ENTRY.size - 1)
            self._last_indexed_time = last
            if self.max_timestamp is None or last > self.max_timestamp:
                self.max_timestamp = last
                self.max_timestamp_offset = self.base_offset + relative

    def rebuild_indexes(self, io: Io, file: OpenFile, interval: int) -> None:
        """Rebuild the indexes in memory from the batch headers. After `CorruptLogError` the indexes are as before."""
        before = self.index, self.times, self.max_timestamp, self.max_timestamp_offset
        size = self.size
        self.start()
        self.size = 0
        try:
            for _, header in iter_headers(io, file.fd, 0, size):
                self.note(header.last_offset, header.size_in_bytes, header.max_timestamp, interval)
        except CorruptLogError as error:
            self.index, self.times, self.max_timestamp, self.max_timestamp_offset = before
            raise CorruptLogError(str(error), self) from None
        finally:
            self.size = size
        self.finish_times()

    def cut_indexes(self, entries: int) -> None:
        """Keep the first `entries` of the offset index. A scan then continues from the batch of the first entry cut."""
        assert self.index is not None
        assert self.times is not None
        last = self.index[entries] >> 32
        del self.index[entries:]
        size = index.TIME_ENTRY.size
        count = len(self.times) // size
        while count and index.time_entry(self.times, count - 1)[1] > last:
            count -= 1
        del self.times[count * size :]
        self.max_timestamp = self._last_indexed_time = -1
        self.max_timestamp_offset = self.base_offset
        if count:
            self.max_timestamp, relative = index.time_entry(self.times, count - 1)
            self._last_indexed_time = self.max_timestamp
            self.max_timestamp_offset = self.base_offset + relative

    def index_on_next(self, interval: int) -> None:
        """Make the next noted batch an indexed one."""
        self._bytes_since_entry = interval + 1

    def drop_indexes(self, io: Io) -> None:
        """Free the memory of the indexes; they are read again when needed."""
        self.write_indexes(io)
        self.forget_indexes()

    def forget_indexes(self) -> None:
        """Forget the indexes in memory: the files count."""
        self.index = None
        self.times = None
        self.aborted = None

    def load_tail(self, io: Io, file: OpenFile) -> int:
        """Read what appends need (end offset, newest timestamp) from the last indexed batch on. Gives the end offset.

        Raises `CorruptLogError` if the batches do not end exactly where the file ends.
        """
        self.load_indexes(io)
        assert self.index is not None
        if self.max_timestamp is None:
            self.max_timestamp = -1
        if self.size == 0:
            return self.base_offset
        position = index.position_of(self.index[-1]) if self.index else 0
        last = -1
        start = position
        for at, header in iter_headers(io, file.fd, position, self.size):
            last = header.last_offset
            if at == start and self.index and last - self.base_offset != self.index[-1] >> 32:
                raise CorruptLogError(f"{self.path(INDEX_SUFFIX)} does not match its log", self)
            if header.max_timestamp > self.max_timestamp:
                self.max_timestamp = header.max_timestamp
                self.max_timestamp_offset = last
        if last < self.base_offset:
            raise CorruptLogError(f"{self.path()} ends with offset {last}", self)
        self._bytes_since_entry = self.size - position
        self.first_timestamp = batch.parse_header(io.pread(file.fd, batch.HEADER_SIZE, 0)).max_timestamp
        return last + 1

    def newest(self, io: Io) -> tuple[int, int]:
        """The newest timestamp with the last offset of its batch; the file's age if no record has a timestamp."""
        if self.max_timestamp is None:
            self.max_timestamp = -1
            with contextlib.suppress(FileNotFoundError):
                size = io.stat(self.path(TIME_INDEX_SUFFIX)).st_size // index.TIME_ENTRY.size * index.TIME_ENTRY.size
                if size:
                    fd = io.open(self.path(TIME_INDEX_SUFFIX), os.O_RDONLY)
                    try:
                        data = io.pread(fd, index.TIME_ENTRY.size, size - index.TIME_ENTRY.size)
                    finally:
                        io.close(fd)
                    self.max_timestamp, relative = index.time_entry(data, 0)
                    self.max_timestamp_offset = self.base_offset + relative
        if self.max_timestamp < 0:
            return int(io.stat(self.path()).st_mtime * 1000), -1
        return self.max_timestamp, self.max_timestamp_offset

    def find(self, io: Io, file: OpenFile, offset: int, end: int) -> tuple[int, int, int] | None:
        """Position, base offset and size of the first batch before `end` whose last offset is at least `offset`."""
        if self.index is None:
            self.load_indexes(io)
        entries = self.index
        assert entries is not None
        at = index.floor_entry(entries, offset - self.base_offset)
        if at < 0:
            return self.walk(io, file, 0, offset, end)
        entry = entries[at]
        # The walk begins at the indexed batch itself: if it does not end where the index says, the index is wrong.
        return self.walk(io, file, entry & 0xFFFFFFFF, offset, end, expected=self.base_offset + (entry >> 32))

    def open_at(self, io: Io, offset: int) -> tuple[OpenFile, int] | None:
        """The open file, and the position of the first batch that ends at or after `offset`; None without one."""
        file = OpenFile(io, self.path(), os.O_RDONLY)
        if offset <= self.base_offset:
            return file, 0
        found = self.find(io, file, offset, self.size)
        return None if found is None else (file, found[0])

    def walk(
        self, io: Io, file: OpenFile, position: int, offset: int, end: int, *, expected: int = -1
    ) -> tuple[int, int, int] | None:
        """Like `find`, from the batch at `position` on, without the index."""
        chunk = _SCAN_CHUNK
        start = position
        data = b""
        unpack = _WALK.unpack_from
        while position < end:
            at = position - start
            if at + _WALK_SIZE > len(data):
                start = position
                at = 0
                data = io.pread(file.fd, min(chunk, end - position), position)
                if len(data) < _WALK_SIZE:
                    raise CorruptLogError(f"{self.path()} ends in the batch at {position}", self)
            base, length, delta = unpack(data, at)
            if length < batch.HEADER_SIZE - batch.LOG_OVERHEAD:
                raise CorruptLogError(f"{self.path()} has no batch at {position}", self)
            if expected >= 0:
                if base + delta != expected:
                    raise CorruptLogError(f"{self.path(INDEX_SUFFIX)} does not match its log at {position}", self)
                expected = -1
            if base + delta >= offset:
                return position, base, length + batch.LOG_OVERHEAD
            position += length + batch.LOG_OVERHEAD
        return None

    def align(self, io: Io, file: OpenFile, start: int, limit: int, *, at_least_one: bool) -> int:
        """The end of a range from the batch at `start`, on a batch boundary; at most `limit` if a whole batch fits."""
        if self.index is None:
            self.load_indexes(io)
        assert self.index is not None
        end = index.last_position_up_to(self.index, limit)
        if end > start:
            return end
        end = start
        while True:
            data = io.pread(file.fd, batch.LOG_OVERHEAD, end)
            if len(data) < batch.LOG_OVERHEAD:
                raise CorruptLogError(f"{self.path()} ends in the batch at {end}", self)
            _, length = batch.OFFSET_AND_LENGTH.unpack(data)
            if length < batch.HEADER_SIZE - batch.LOG_OVERHEAD:
                if end > start:  # give the whole batches before it
                    return end
                raise CorruptLogError(f"{self.path()} has no batch at {end}", self)
            after = end + length + batch.LOG_OVERHEAD
            if after > limit:
                return after if end == start and at_least_one else end
            end = after


def iter_headers(io: Io, fd: int, position: int, end: int) -> Iterator[tuple[int, batch.BatchHeader]]:
    """Position and header of every batch from `position` to `end`. Raises `CorruptLogError` if they do not chain."""
    chunk = _SCAN_CHUNK
    start = position
    data = b""
    while position < end:
        at = position - start
        if at + batch.HEADER_SIZE > len(data):
            # The last chunk had many batches: they are small, so larger reads pay.
            if at < len(data) + chunk:
                chunk = min(chunk * 2, _MAX_SCAN_CHUNK)
            start = position
            at = 0
            data = io.pread(fd, min(chunk, end - position), position)
            if len(data) < batch.HEADER_SIZE:
                raise CorruptLogError(f"no whole batch at position {position}")
        header = batch.parse_header(data, at)
        size = header.batch_length + batch.LOG_OVERHEAD
        if header.magic != batch.MAGIC or size < batch.HEADER_SIZE or position + size > end:
            raise CorruptLogError(f"no whole batch at position {position}")
        yield position, header
        position += size
