"""Queries that only filter rows and choose columns, without the JVM.

Such a query computes nothing, so its results can be taken directly from the columns that are read; see decision 10.
"""

from __future__ import annotations

import msgspec
import pyarrow as pa

from barnabas.streams.encode.objects import can_write, objects
from barnabas.streams.source.where import Condition, decidable, mask


class Simple(msgspec.Struct, frozen=True):
    """A query that computes nothing: a result's parts are unchanged columns of its source.

    Its value is the column `value` or, if that is empty, a JSON object of `columns`: names in the object, and columns.
    """

    conditions: tuple[Condition, ...]
    key: str
    timestamp: str
    value: str
    columns: tuple[tuple[str, str], ...]

    def suits(self, rows: pa.Schema) -> bool:
        """Whether rows with such columns can be processed without Spark."""
        return decidable(self.conditions, rows) == self.conditions and all(
            can_write(rows.field(column).type) for _, column in self.columns
        )

    @property
    def names_bytes(self) -> int:
        """The bytes that the columns' names take in an object."""
        return sum(len(name.encode()) + 4 for name, _ in self.columns)

    def results(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The records that result from these rows, as `streams.encode` expects them."""
        if self.conditions:
            keep = mask(self.conditions, rows)
            wanted = {self.key, self.timestamp, self.value, *(c for _, c in self.columns), "_headers", "_offset"} - {""}
            rows = rows.select(sorted(wanted)).filter(keep)
        if self.value:
            value = rows.column(self.value)
        else:
            value = objects([(name, rows.column(column)) for name, column in self.columns])
        arrays = [*(rows.column(c) for c in ("_offset", self.timestamp, self.key)), value, rows.column("_headers")]
        return pa.RecordBatch.from_arrays(arrays, names=["offset", "timestamp", "key", "value", "headers"])
