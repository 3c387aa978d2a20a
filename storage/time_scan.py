"""The part of a look-up by time that may take long: a walk over batches, in a thread if necessary.

The time index says where the walk begins; the records' timestamps say where it ends. In an honest log that is one
batch. If a client sends a timestamp far in the future first, everything after it has no index entries; and a batch may
hold many records.
"""

from __future__ import annotations

from barnabas.storage.errors import CorruptLogError
from barnabas.storage.files import OpenFile
from barnabas.storage.io import Io
from barnabas.storage.segment import Segment, iter_headers
from barnabas.wire import batch
from barnabas.wire.errors import KafkaError


class SegmentScan:
    """The `TimeScan` of one stretch of a segment file. What it reads stays valid while it is referenced."""

    __slots__ = ("_end", "_error", "_file", "_found", "_hi", "_io", "_lo", "_position", "_segment", "_timestamp")

    def __init__(
        self, io: Io, segment: Segment, file: OpenFile, position: int, end: int, timestamp: int, lo: int, hi: int
    ) -> None:
        """Scan the file from `position` to `end`, and the offsets from `lo` up to `hi`."""
        self._segment = segment
        self._io, self._file, self._position, self._end = io, file, position, end
        self._timestamp, self._lo, self._hi = timestamp, lo, hi
        self._found: tuple[int, int] | None = None
        self._error: Exception | None = None

    def run(self) -> None:
        """Find the first record that is not older than the timestamp."""
        try:
            self._found = self._walk()
        except CorruptLogError as error:
            self._error = CorruptLogError(str(error), self._segment)
        except (OSError, KafkaError) as error:
            self._error = error

    def end(self) -> tuple[int, int] | None:
        """Offset and timestamp of the record found; None if there is none.

        Raises OSError, CorruptLogError, and KafkaError for a damaged batch.
        """
        if self._error is not None:
            raise self._error
        return self._found

    def _walk(self) -> tuple[int, int] | None:
        for position, header in iter_headers(self._io, self._file.fd, self._position, self._end):
            if header.max_timestamp < self._timestamp or header.last_offset < self._lo:
                continue
            data = self._io.pread(self._file.fd, header.size_in_bytes, position)
            found = batch.find_time(data, self._timestamp, self._lo, self._hi)
            if found is not None:
                return found
        return None
