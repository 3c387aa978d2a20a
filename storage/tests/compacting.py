"""Shared by the tests of compaction: a pass over a vnode on the spot, and logs to clean."""

from __future__ import annotations

from collections.abc import Callable

from barnabas.storage.compaction import StoppedError
from barnabas.storage.compaction_terms import CompactionFigures, CompactionLimits
from barnabas.storage.config import LogConfig
from barnabas.storage.errors import CorruptLogError
from barnabas.storage.tests.support import NOW
from barnabas.storage.vnode import Vnode
from barnabas.wire import batch, compact
from barnabas.wire.batch import Record

RETENTION = 1000
CONFIG = LogConfig(segment_bytes=700, index_interval_bytes=100, cleanup_policy="compact", delete_retention_ms=RETENTION)


def limits_of(keys: int = 1000, *, read_bytes: int = 512 << 10) -> CompactionLimits:
    """Limits with a map for `keys` keys."""
    return CompactionLimits(map_bytes=keys * compact.SLOT_BYTES, load_factor=1.0, read_bytes=read_bytes)


def clean(vnode: Vnode, now_ms: int = NOW, limits: CompactionLimits | None = None) -> CompactionFigures | None:
    """Run one pass; None if there was nothing to do or nothing was cleaned. Raises StorageError."""
    job = vnode.begin_compaction(now_ms, limits or limits_of())
    if job is None:
        return None
    goes_on = True
    while goes_on:
        error: Exception | None = None
        try:
            job.run()
        except (OSError, CorruptLogError, StoppedError) as caught:
            error = caught
        goes_on = vnode.end_compaction(job, error)
    return job.figures if job.is_done else None


def keyed(key: bytes, value: bytes | None, timestamp: int = NOW, *, compression: int = 0) -> bytes:
    return batch.build_batch([Record(key, value, timestamp)], compression=compression)


def in_order(number: int) -> int:
    return NOW + number


def filled(
    vnode: Vnode, count: int = 60, keys: int = 7, time_of: Callable[[int], int] = in_order
) -> dict[bytes, bytes]:
    """Append `count` records of a few keys, and flush; gives the last value of each key."""
    last = {}
    for number in range(count):
        key, value = b"k%d" % (number % keys), b"v%d" % number
        vnode.append(keyed(key, value, time_of(number)), now_ms=NOW)
        last[key] = value
    vnode.flush()
    return last


def pairs(records: list[Record]) -> dict[bytes, bytes]:
    """The table that a consumer has after all records."""
    table: dict[bytes, bytes] = {}
    for record in records:
        assert record.key is not None
        if record.value is None:
            table.pop(record.key, None)
        else:
            table[record.key] = record.value
    return table
