"""Which segments the delete policy removes: by the age of their newest record, and by the size of the log."""

from __future__ import annotations

from barnabas.storage.faults import Fault, fault_of
from barnabas.storage.log import Log


def expired(log: Log, high_watermark: int, now_ms: int) -> int:
    """How many of the oldest segments to delete. If that is all, a new one was rolled after them. Raises OSError."""
    count = max(_by_time(log, high_watermark, now_ms), _by_size(log, high_watermark))
    if count and count == len(log.segments):
        try:
            log.roll(log.end_offset, now_ms)
        except OSError as error:
            if fault_of(error) is Fault.OFFLINE:
                raise
            return count - 1  # no room for a new one: the last one stays until the others are deleted
    return count


def _by_time(log: Log, high_watermark: int, now_ms: int) -> int:
    limit = log.config.retention_ms
    if limit < 0:
        return 0
    count = 0
    for number, segment in enumerate(log.segments):
        if not segment.size or not _is_below(log, number, high_watermark):
            break
        if now_ms - segment.newest(log.io)[0] <= limit:
            break
        count += 1
    return count


def _by_size(log: Log, high_watermark: int) -> int:
    limit = log.config.retention_bytes
    if limit < 0:
        return 0
    excess = log.size_bytes - limit
    count = 0
    for number, segment in enumerate(log.segments):
        if not segment.size or excess < segment.size or not _is_below(log, number, high_watermark):
            break
        excess -= segment.size
        count += 1
    return count


def _is_below(log: Log, number: int, high_watermark: int) -> bool:
    end = log.bases[number + 1] if number + 1 < len(log.bases) else log.end_offset
    return end <= high_watermark
