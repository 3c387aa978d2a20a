"""The decoder's two backends behind one function."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

import pyarrow as pa

from barnabas.streams.decode.batches import Records
from barnabas.streams.decode.python import decode_python
from barnabas.streams.decode.types import SCHEMA
from barnabas.streams.native import warn_not_built

Backend = Callable[[Sequence[Records], Sequence[str]], tuple[int, dict[str, pa.Array]]]


@cache
def backend() -> Backend:
    """The C decoder if it was built, otherwise the one in Python. The latter is logged once."""
    try:
        from barnabas.streams.decode.native import decode_native
    except ImportError:
        warn_not_built("record decoder", "in Python")
        return decode_python
    return decode_native


def decode(records: Sequence[Records], columns: Sequence[str]) -> tuple[int, dict[str, pa.Array]]:
    """The number of wanted records, and an array of that length for each requested column of `SCHEMA`.

    Timestamps are milliseconds since 1970 in UTC. Raises KafkaError INVALID_RECORD for damaged records.
    """
    unknown = set(columns) - set(SCHEMA.names)
    if unknown:
        raise ValueError(f"no column {', '.join(sorted(unknown))}")
    return backend()(records, columns)
