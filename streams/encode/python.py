"""The encoder in Python: the C encoder is tested against it, and it is used where the C module was not built."""

from __future__ import annotations

from itertools import pairwise

from barnabas.streams.encode.columns import Columns
from barnabas.streams.encode.written import Writer, Written
from barnabas.wire.batch import NO_TIMESTAMP, Record, encode_record

_MAX_INT32 = 2**31 - 1
_INT64 = range(-(2**63), 2**63)


def writer_in_python(columns: Columns) -> Writer:
    """See `streams.encode.written`."""
    records = _records(columns)

    def write(row: int, base_offset: int, max_bytes: int) -> Written:
        body = bytearray()
        base_timestamp, max_timestamp = records[row].timestamp, NO_TIMESTAMP
        end = row
        while end < len(records):
            record = records[end]
            timestamp, delta = record.timestamp - base_timestamp, record.offset - base_offset
            if delta > _MAX_INT32 or timestamp not in _INT64:
                break
            encoded = encode_record(record, timestamp, delta)
            if end > row and len(body) + len(encoded) > max_bytes:
                break
            body += encoded
            max_timestamp = max(max_timestamp, record.timestamp)
            end += 1
        return Written(bytes(body), end, max_timestamp)

    return write


def _records(columns: Columns) -> list[Record]:
    pairs = list(zip(columns.names.to_pylist(), columns.contents.to_pylist(), strict=True))
    headers = [tuple(pairs[start:end]) for start, end in pairwise(columns.lists.to_pylist())]
    fields = (columns.key, columns.value, columns.timestamp, headers, columns.offset)
    lists = (field if isinstance(field, list) else field.to_pylist() for field in fields)
    return [Record(*one) for one in zip(*lists, strict=True)]
