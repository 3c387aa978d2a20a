"""Turns lines of text into the records of a batch, and records into text: many at a time, in C if that was built.

Without the C module, `NATIVE` is false, and callers go record by record (`wire.batch`). That gives the same result but
takes several times as long.
"""

from __future__ import annotations

from typing import NamedTuple

from barnabas.wire.aliases import BytesLike
from barnabas.wire.batch import TIMESTAMP_TYPE_BIT, BatchHeader, assemble_batch, write_headers
from barnabas.wire.errors import ErrorCode, KafkaError

try:
    from barnabas.wire import _lines

    NATIVE = True
except ImportError:
    NATIVE = False

#: Texts, and the letters of placeholders: k key, s value, o offset, T timestamp, h headers.
Parts = tuple[bytes | str, ...]


class Encoded(NamedTuple):
    """A batch of lines, their number, where the next line begins, and whether that one lacks the key separator."""

    batch: bytes
    records: int
    end: int
    is_bad: bool


class LineRules(NamedTuple):
    """How a line becomes a record: the separator between key and value, the null marker, and the headers of all."""

    separator: bytes | None = None
    null: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    strip_cr: bool = False


def encode_lines(
    lines: BytesLike, start: int, rules: LineRules, now_ms: int, *, most_records: int, most_bytes: int, codec: int = 0
) -> Encoded:
    """A batch of the lines from `start` on; the last one may be unterminated. All have the time `now_ms`.

    It ends with `most_records`, or with the first line that makes the records exceed `most_bytes`. The batch is empty
    if the first line is bad. Needs NATIVE.
    """
    headers = bytearray()
    write_headers(headers, rules.headers)
    found, count, end, is_bad = _lines.encode(
        lines, start, rules.separator, rules.null, bytes(headers), rules.strip_cr, most_records, most_bytes
    )
    if not count:
        return Encoded(b"", 0, end, is_bad)
    batch = assemble_batch(
        found,
        records_count=count,
        base_offset=0,
        last_offset_delta=count - 1,
        base_timestamp=now_ms,
        max_timestamp=now_ms,
        attributes=codec,
    )
    return Encoded(batch, count, end, is_bad)


class Filled(NamedTuple):
    """A text, the number of its records, and the position after the last of them."""

    text: bytes
    records: int
    position: int


def fill_batch(header: BatchHeader, data: bytes, position: int, most: int, parts: Parts) -> Filled:
    """At most `most` records of a batch from a position on, formatted as text. Needs NATIVE.

    `data` are the decompressed records. Null is written as NULL, as in `consume --format`. Raises KafkaError
    INVALID_RECORD for invalid records.
    """
    is_stamped = bool(header.attributes & TIMESTAMP_TYPE_BIT)
    times = header.base_timestamp, is_stamped, header.max_timestamp
    try:
        found = _lines.fill(data, header.records_count, header.base_offset, *times, position, most, parts)
    except ValueError as error:
        raise KafkaError(ErrorCode.INVALID_RECORD, str(error)) from None
    filled = Filled(*found)
    if filled.records and filled.position > header.last_offset + 1:
        raise KafkaError(ErrorCode.INVALID_RECORD, "an offset is above the batch's last one")
    return filled
