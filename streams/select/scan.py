"""Reads the rows of a topic that a query may need, batch by batch. What the query does not need is not read, or not
decoded.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from barnabas.streams.query.parts import PART_FIELDS
from barnabas.streams.query.reading import options_of
from barnabas.streams.select.errors import NeedsSpark
from barnabas.streams.select.plan import Planned
from barnabas.streams.select.typed import TIME, Values
from barnabas.streams.source.options import Options
from barnabas.streams.source.rows import rows_of
from barnabas.streams.source.where import Condition, mask
from barnabas.streams.wal import LogDir, offset_at, plan
from barnabas.wire.aliases import TopicPartition
from barnabas.wire.queries import plan as queries

_FIRST_TAIL = 1000
#: The largest split: its end is looked up before its first record is read.
_SPLIT_BYTES = 8 << 20


class Batch:
    """Rows as read, and their columns as values, which are made once."""

    def __init__(self, rows: pa.RecordBatch) -> None:
        self.rows = rows
        self._made: dict[str, Values] = {}

    def __len__(self) -> int:
        return int(self.rows.num_rows)

    def values(self, name: str) -> Values:
        """A column; times are microseconds. Raises NeedsSpark for texts that are not UTF-8."""
        if name not in self._made:
            column = self.rows.column(name)
            if column.type == TIME:
                column = column.cast(pa.int64())
            try:
                self._made[name] = column.to_pylist()
            except UnicodeDecodeError:
                raise NeedsSpark(f"{name} is not UTF-8 everywhere") from None
        return self._made[name]

    def where(self, keep: Sequence[Any]) -> Batch:
        """The rows for which `keep` is True; null counts as False."""
        return self if all(keep) else Batch(self.rows.filter(pa.array(keep, pa.bool_())))


class Scan:
    """The rows of a topic that meet a query's simple conditions, with the columns that it needs.

    `read` is the number of records read so far.
    """

    def __init__(self, log_dir: LogDir, values: queries.Values, typed: pa.Schema, planned: Planned) -> None:
        """`typed` are the typed columns of the topic's values."""
        self._log_dir, self._planned = log_dir, planned
        self.read = 0
        needed = planned.names or {"_offset"}
        kinds = [field for field in (*typed, *PART_FIELDS) if field.name in needed]
        self._names = [field.name for field in kinds]
        if any(field.name in typed.names for field in kinds):
            self._rows = rows_of(options_of(values), pa.schema(kinds), typed)
        else:  # nothing is parsed
            target = pa.schema([field.with_name(field.name[1:]) for field in kinds])
            self._rows = rows_of(Options(path=""), target)

    def ranges(self) -> dict[TopicPartition, tuple[int, int]]:
        """The offsets of each partition that may meet the conditions. Raises WalError."""
        source, conditions = self._planned.source, self._planned.conditions
        keys = [key for key in self._log_dir.partitions(source) if _may_be(key[1], conditions)]
        found = {}
        for key, (lo, hi) in self._log_dir.ranges(keys).items():
            for each in conditions:
                if each.column == "_offset":
                    lo, hi = _narrowed(each, lo, hi)
            if self._planned.since is not None and lo < hi:
                since = offset_at(self._log_dir, key, -(-self._planned.since // 1000), lo, hi)
                lo = hi if since is None else since
            if lo < hi:
                found[key] = lo, hi
        return found

    def forwards(self) -> Iterator[Batch]:
        """All rows, partition by partition. Raises WalError."""
        for key, (lo, hi) in self.ranges().items():
            yield from self._between(key, lo, hi)

    def backwards(self, key: TopicPartition, lo: int, hi: int, wanted: int) -> Iterator[list[Batch]]:
        """A partition's rows, beginning with the newest piece of its log; each piece is larger than the one before."""
        size = max(2 * wanted, _FIRST_TAIL)
        while lo < hi:
            begin = max(lo, hi - size)
            yield list(self._between(key, begin, hi))
            hi, size = begin, size * 2

    def _between(self, key: TopicPartition, lo: int, hi: int) -> Iterator[Batch]:
        for split in plan(self._log_dir, {key: (lo, hi)}, split_bytes=_SPLIT_BYTES):
            for rows in self._rows.batches(split):
                self.read += rows.num_rows
                found = pa.RecordBatch.from_arrays(rows.columns, names=self._names)
                if self._planned.conditions:
                    found = found.filter(mask(self._planned.conditions, found))
                batch = Batch(found)
                for test in self._planned.tests:
                    if len(batch):
                        batch = batch.where([each is True for each in test.values(batch)])
                if len(batch):
                    yield batch


def _may_be(partition: int, conditions: Sequence[Condition]) -> bool:
    found = pa.RecordBatch.from_arrays([pa.array([partition], pa.int32())], names=["_partition"])
    own = [each for each in conditions if each.column == "_partition"]
    return not own or bool(pc.all(mask(own, found)).as_py())


def _narrowed(one: Condition, lo: int, hi: int) -> tuple[int, int]:
    value = one.value if isinstance(one.value, int) else 0
    least, end = {
        "EqualTo": (value, value),
        "GreaterThan": (value + 1, sys.maxsize),
        "GreaterThanOrEqual": (value, sys.maxsize),
        "LessThan": (0, value - 1),
        "LessThanOrEqual": (0, value),
    }.get(one.kind, (0, sys.maxsize))
    return max(lo, least), min(hi, end + 1)
