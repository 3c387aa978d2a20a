"""One walk over the decompressed records of a batch, in C if that was built.

`check` says whether a producer's records match the batch header, and which of them break a rule of their topic.
`find_time` looks up a timestamp. Both take a few nanoseconds per record in C, and more than a hundred times that in
Python, which is used if there was no C compiler at the installation. Both versions accept and reject the same bytes,
which a test checks.
"""

from __future__ import annotations

from collections.abc import Callable

from barnabas.wire.aliases import BytesLike
from barnabas.wire.varint import read_long_varint

#: Why a record breaks a rule of its topic: see `check`.
NO_KEY, BAD_TIMESTAMP = 1, 2
_LEAST, _MOST = -(2**63), 2**63 - 1


def check_in_python(
    records: BytesLike, start: int, count: int, base_timestamp: int, oldest: int, newest: int, keyed: bool, most: int, /
) -> tuple[int, tuple[tuple[int, int], ...], int]:
    """Walk the `count` records from `start` on to the end; their offset deltas must be 0, 1, 2 and so on.

    Returns the newest timestamp (-1 if no record has one); the first `most` records that break a rule, as (index,
    reason); and how many records break one. A record breaks a rule with NO_KEY if it has no key and `keyed` is set,
    otherwise with BAD_TIMESTAMP if its timestamp is outside `oldest` to `newest`. Raises ValueError, with the record's
    index, if the bytes are not `count` complete records.
    """
    data = bytes(records)
    pos, bad = start, 0
    found: list[tuple[int, int]] = []
    newest_seen = -1
    for index in range(count):
        timestamp, delta, key_size, pos = _record(data, pos, base_timestamp, index, whole=True)
        if delta != index:
            raise ValueError(f"record {index} is not at the offset after the one before")
        reason = 0
        if keyed and key_size < 0:
            reason = NO_KEY
        elif timestamp != -1 and not oldest <= timestamp <= newest:
            reason = BAD_TIMESTAMP
        if reason:
            bad += 1
            if len(found) < most:
                found.append((index, reason))
        newest_seen = max(newest_seen, timestamp)
    if pos != len(data):
        raise ValueError(f"{len(data) - pos} bytes after the last record")
    return newest_seen, tuple(found), bad


def find_time_in_python(
    records: BytesLike,
    count: int,
    base_timestamp: int,
    base_offset: int,
    append_time: int,
    stamped: bool,
    wanted: int,
    lo: int,
    hi: int,
    /,
) -> tuple[int, int] | None:
    """(offset, timestamp) of the first record with an offset from `lo` up to `hi` that is not older than `wanted`.

    `stamped`: all records have the timestamp `append_time`. Raises ValueError for bytes that are not records.
    """
    data = bytes(records)
    pos = 0
    for index in range(count):
        timestamp, delta, _, pos = _record(data, pos, base_timestamp, index, whole=False)
        offset = base_offset + delta
        if stamped:
            timestamp = append_time
        if timestamp >= wanted and lo <= offset < hi:
            return offset, timestamp
    return None


def _record(data: bytes, pos: int, base_timestamp: int, index: int, *, whole: bool) -> tuple[int, int, int, int]:
    """Timestamp, offset delta and key size of the record at `pos`, and the position after it."""
    what = "length"
    try:
        length, pos = read_long_varint(data, pos, 32)
        end = pos + length
        if not pos < end <= len(data):
            raise ValueError
        record = data[pos:end]
        what = "timestamp"
        delta, pos = read_long_varint(record, 1, 64)  # after the attributes, which are unused
        timestamp = base_timestamp + delta
        if not _LEAST <= timestamp <= _MOST:
            raise ValueError
        what = "offset"
        offset_delta, pos = read_long_varint(record, pos, 32)
        what = "key"
        key_size, pos = _blob(record, pos)
        if whole:
            what = "value"
            _, pos = _blob(record, pos)
            what = "headers"
            pos = _headers(record, pos)
    except (IndexError, ValueError):
        article = "has" if what == "headers" else "has a"
        raise ValueError(f"record {index} {article} wrong {what}") from None
    if whole and pos != len(record):
        raise ValueError(f"record {index} is longer than its content")
    return timestamp, offset_delta, key_size, end


def _blob(record: bytes, pos: int) -> tuple[int, int]:
    """The size of a blob (-1 for null), and the position after it."""
    size, pos = read_long_varint(record, pos, 32)
    if not -1 <= size <= len(record) - pos:
        raise ValueError
    return size, pos + max(size, 0)


def _headers(record: bytes, pos: int) -> int:
    count, pos = read_long_varint(record, pos, 32)
    if not 0 <= count <= len(record) - pos:
        raise ValueError
    for _ in range(count):
        size, pos = _blob(record, pos)
        if size < 0:
            raise ValueError
        record[pos - size : pos].decode()
        _, pos = _blob(record, pos)
    return pos


Check = Callable[[BytesLike, int, int, int, int, int, bool, int], tuple[int, tuple[tuple[int, int], ...], int]]
FindTime = Callable[[BytesLike, int, int, int, int, bool, int, int, int], tuple[int, int] | None]

check: Check = check_in_python
find_time: FindTime = find_time_in_python
#: Whether the C version is used.
NATIVE = False
try:
    from barnabas.wire import _walk
except ImportError:
    pass
else:
    check, find_time, NATIVE = _walk.check, _walk.find_time, True
