"""The decoder in Python: the C decoder is tested against it, and it is used where the C module was not built."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from barnabas.streams.decode.batches import Records
from barnabas.streams.decode.types import SCHEMA
from barnabas.wire.batch import decode_records
from barnabas.wire.errors import ErrorCode, KafkaError

_INT64 = range(-(2**63), 2**63)


def decode_python(records: Sequence[Records], columns: Sequence[str]) -> tuple[int, dict[str, pa.Array]]:
    """See `streams.decode.decode`."""
    found: dict[str, list[Any]] = {name: [] for name in SCHEMA.names}
    keys, values, offsets = found["key"], found["value"], found["offset"]
    timestamps, types, headers = found["timestamp"], found["timestampType"], found["headers"]
    for header, data, lo, hi in records:
        kind = header.timestamp_type
        for record in decode_records(header, bytes(data)):
            if record.timestamp not in _INT64:
                raise KafkaError(ErrorCode.INVALID_RECORD, f"timestamp {record.timestamp}")
            if lo <= record.offset < hi:
                keys.append(record.key)
                values.append(record.value)
                offsets.append(record.offset)
                timestamps.append(record.timestamp)
                types.append(kind)
                headers.append([{"key": name, "value": value} for name, value in record.headers] or None)
    return len(offsets), {name: pa.array(found[name], SCHEMA.field(name).type) for name in columns}
