"""The part of a look-up by time that may take long: a walk over batches, in a thread if need be.

The time index says where to begin; where it ends, timestamps decide. In an honest log that is one batch. A client that
sends a far timestamp first makes everything after it one stretch without entries, and a batch may hold many records.
"""

from __future__ import annotations

from barnabas.storage.io import Io
from barnabas.storage.segment import CorruptLogError, OpenFile, Segment, iter_headers
from barnabas.wire import batch


class TimeScan:
    """One stretch of a segment file. `run` touches no vnode; what it reads stays valid while this is referenced."""

    __slots__ = ("_end", "_file", "_hi", "_io", "_lo", "_position", "_segment", "_timestamp")

    def __init__(
        self, io: Io, segment: Segment, file: OpenFile, position: int, end: int, timestamp: int, lo: int, hi: int
    ) -> None:
        """From `position` to `end`, among the offsets from `lo` up to `hi`."""
        self._segment = segment
        self._io, self._file, self._position, self._end = io, file, position, end
        self._timestamp, self._lo, self._hi = timestamp, lo, hi

    def run(self) -> tuple[int, int] | None:
        """Offset and timestamp of the first record that is not older; None if there is none.

        Raises OSError, CorruptLogError, and KafkaError for a damaged batch.
        """
        try:
            return self._walk()
        except CorruptLogError as error:
            raise CorruptLogError(str(error), self._segment) from None

    def _walk(self) -> tuple[int, int] | None:
        for position, header in iter_headers(self._io, self._file.fd, self._position, self._end):
            if header.max_timestamp < self._timestamp or header.last_offset < self._lo:
                continue
            data = self._io.pread(self._file.fd, header.size_in_bytes, position)
            found = batch.find_time(data, self._timestamp, self._lo, self._hi)
            if found is not None:
                return found
        return None
