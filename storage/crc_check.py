"""The CRCs of a range of a segment that a reader wants and nobody has looked at since the process began.

A consumer that is sent a damaged batch hands it on, skips records or stops for good: clients differ. So batches that
were not written by this process are checked before they are sent for the first time, by a thread that reads them into
the page cache with it.
"""

from __future__ import annotations

from barnabas.storage.io import Io
from barnabas.storage.segment import FileSlice, OpenFile, Segment
from barnabas.wire import batch
from barnabas.wire.errors import KafkaError

_PIECE = 1 << 20


class CrcCheck:
    """Bytes [start, end) of a segment, on batch boundaries. `run` may be called in a thread: it touches no vnode."""

    def __init__(self, io: Io, segment: Segment, file: OpenFile, start: int, end: int) -> None:
        self.segment, self.start, self.end = segment, start, end
        #: Up to here all batches are whole; and what is wrong with the next one.
        self.good = start
        self.error: KafkaError | None = None
        self._io, self._file = io, file

    def run(self) -> None:
        """Look at the batches up to the first damaged one. Raises OSError."""
        size = _PIECE
        while self.good < self.end:
            data = memoryview(self._io.pread(self._file.fd, min(size, self.end - self.good), self.good))
            at = 0
            try:
                while at < len(data):
                    length = batch.size_at(data, at)
                    if at + length > len(data) and len(data) == size and self.good + at + length <= self.end:
                        break  # the rest of it comes with the next piece
                    at += batch.check(data, at).size_in_bytes
            except KafkaError as error:
                self.good += at
                self.error = error
                return
            size = size if at else 2 * size
            self.good += at

    def slice(self) -> FileSlice:
        """The whole batches."""
        return FileSlice(self._io, self._file, self.start, self.good - self.start, cached=True)
