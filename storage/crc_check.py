"""Check the CRCs of a range of a segment that a reader wants and that was not checked since the process began.

Clients differ in what they do with a damaged batch: they pass it on, skip records or stop for good. So batches that
this process did not write are checked before they are sent for the first time. A thread does this, and so reads them
into the page cache.
"""

from __future__ import annotations

from barnabas.storage.errors import CorruptLogError
from barnabas.storage.files import FileSlice, OpenFile
from barnabas.storage.io import Io
from barnabas.storage.segment import Segment
from barnabas.wire import batch
from barnabas.wire.errors import KafkaError

_PIECE = 1 << 20


class CrcCheck:
    """The `Check` of bytes [start, end) of a segment, on batch boundaries."""

    __slots__ = ("_damage", "_end", "_error", "_file", "_good", "_io", "_start", "segment")

    def __init__(self, io: Io, segment: Segment, file: OpenFile, start: int, end: int) -> None:
        self.segment = segment
        self._io, self._file = io, file
        self._start, self._end = start, end
        #: All batches up to here are whole; the other one says what is wrong with the next batch.
        self._good = start
        self._damage: KafkaError | None = None
        self._error: OSError | None = None

    def __len__(self) -> int:
        return self._end - self._start

    def run(self) -> None:
        """Check the batches up to the first damaged one."""
        try:
            self._look()
        except OSError as error:
            self._error = error

    def _look(self) -> None:
        size = _PIECE
        while self._good < self._end:
            data = memoryview(self._io.pread(self._file.fd, min(size, self._end - self._good), self._good))
            at = 0
            try:
                while at < len(data):
                    length = batch.size_at(data, at)
                    if at + length > len(data) and len(data) == size and self._good + at + length <= self._end:
                        break  # the rest of it comes with the next piece
                    at += batch.check(data, at).size_in_bytes
            except KafkaError as error:
                self._good += at
                self._damage = error
                return
            size = size if at else 2 * size
            self._good += at

    def end(self) -> FileSlice:
        """The whole batches; the segment notes that they are checked. Raises OSError, and CorruptLogError if the first
        one is damaged.
        """
        if self._error is not None:
            raise self._error
        if self._good == self._start:
            raise CorruptLogError(f"{self.segment.path()} at {self._start}: {self._damage}", self.segment)
        self.segment.note_checked(self._start, self._good)
        return FileSlice(self._io, self._file, self._start, self._good - self._start, cached=True)
