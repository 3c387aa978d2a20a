"""The last report of each subscription to a binary log, read from the topic to which the subscriptions write.

Any client may write to that topic, so the reads are bounded: `MOST_BYTES` each time, only small uncompressed batches,
as the subscriptions write them, and `MOST` subscriptions.
"""

from __future__ import annotations

import trio

from barnabas.broker.partitions import Partitions
from barnabas.storage.vnode import Slice, Vnode
from barnabas.wire.batch import HEADER_SIZE, check, iter_batches, iter_records, parse_header
from barnabas.wire.errors import KafkaError
from barnabas.wire.subscription_reports import TOPIC, Report, report_in

MOST = 1000
MOST_NAME = 200
MOST_BYTES = 256 << 10
MOST_BATCH = 16 << 10


class Subscriptions:
    """`reports` has the last report of each subscription by name, if this node leads the topic's partition."""

    def __init__(self, partitions: Partitions) -> None:
        self._partitions = partitions
        self.reports: dict[str, Report] = {}
        self._vnode: Vnode | None = None
        self._next = 0

    async def note(self) -> None:
        """Read the reports written since the last call, or a part of them."""
        vnode = self._partitions.get(TOPIC, 0)
        if vnode is not self._vnode:  # the topic is another one, or another node leads it
            self._vnode, self._next = vnode, 0
            self.reports.clear()
        if vnode is None or vnode.error is not None:
            return
        try:
            self._next = max(self._next, vnode.log_start_offset)
            piece = vnode.read(self._next, MOST_BYTES).slice if self._next < vnode.high_watermark else None
            if piece is not None:
                found, self._next = await trio.to_thread.run_sync(_reports_in, piece, self._next)
                self._take(found)
        except (KafkaError, OSError):  # damaged or cut off meanwhile: nobody depends on this
            self._next = vnode.high_watermark

    def _take(self, found: dict[str, Report | None]) -> None:
        for name, report in found.items():
            self.reports.pop(name, None)
            if report is not None:
                self.reports[name] = report
        while len(self.reports) > MOST:
            del self.reports[next(iter(self.reports))]


def _reports_in(piece: Slice, offset: int) -> tuple[dict[str, Report | None], int]:
    """The reports in a range of the log, and the offset after it. For a thread. Raises KafkaError, OSError."""
    first = parse_header(piece.first(HEADER_SIZE).read())
    if len(piece) > MOST_BYTES:  # one batch that is larger
        return {}, first.base_offset + first.last_offset_delta + 1
    found: dict[str, Report | None] = {}
    for header, data in iter_batches(piece.read()):
        offset = header.base_offset + header.last_offset_delta + 1
        if len(data) > MOST_BATCH or header.compression or header.is_control:
            continue
        check(data)
        for record in iter_records(data):
            name = (record.key or b"")[: 4 * MOST_NAME].decode("utf-8", "replace")[:MOST_NAME]
            found.pop(name, None)
            found[name] = None if record.value is None else report_in(record.value)
    return found, offset
