"""The reader of batch queries."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from barnabas.streams.source.filters import Bounds
from barnabas.streams.source.offsets import EARLIEST, LATEST, Position
from barnabas.streams.source.options import Options
from barnabas.streams.source.rows import Rows
from barnabas.streams.source.where import Condition, decidable
from barnabas.streams.wal import LogDir, Split, WalError, offset_at, plan


class SplitPartition(InputPartition):
    """One task's split."""

    def __init__(self, split: Split) -> None:
        super().__init__(split)
        self.split = split


class BatchReader(DataSourceReader):
    """Plans the splits of a range of offsets (in the driver), and reads them (in the workers)."""

    def __init__(self, options: Options, rows: Rows) -> None:
        if options.max_offsets or options.max_bytes:
            raise WalError("maxOffsetsPerTrigger and maxBytesPerTrigger are for streaming queries: leave them out")
        self._options, self._rows = options, rows
        self._bounds = Bounds()

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Take over bounds on partition, offset and timestamp; what they do not decide goes back to Spark.

        Filters on columns that can be decided here also leave out rows in the workers.
        """
        back = []
        for one in filters:
            attribute: tuple[str, ...] = getattr(one, "attribute", ())
            column = self._rows.source.get(attribute[0]) if len(attribute) == 1 else None
            if column is None or not self._bounds.take(column, one):
                back.append(one)
        self._rows = msgspec.structs.replace(self._rows, where=decidable(map(_condition, back), self._rows.target))
        return back

    def partitions(self) -> list[InputPartition]:
        """The splits. Raises WalError."""
        options = self._options
        log_dir = LogDir(options.path, bootstrap=options.bootstrap)
        keys = [key for key in options.keys(log_dir) if self._bounds.has_partition(key[1])]
        told = log_dir.ranges(keys)
        loss: dict[str, Any] = {"fail_on_data_loss": options.fail_on_data_loss}
        start = (options.starting or Position(EARLIEST)).resolve("startingOffsets", log_dir, told, **loss)
        end = (options.ending or Position(LATEST)).resolve("endingOffsets", log_dir, told, **loss)
        ranges = {}
        for key in keys:
            lo, hi = self._bounds.narrow(start[key], end[key])
            if lo < hi and self._bounds.since_ms is not None:
                at = offset_at(log_dir, key, self._bounds.since_ms, lo, hi)
                lo = hi if at is None else at
            ranges[key] = lo, hi
        splits = plan(log_dir, ranges, split_bytes=options.split_bytes, **loss)
        return [SplitPartition(split) for split in splits]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a split; none if nothing was planned."""
        if isinstance(partition, SplitPartition):
            yield from self._rows.batches(partition.split)


def _condition(one: Filter) -> Condition:
    """A filter on a whole column as a condition; other filters name no column."""
    attribute: tuple[str, ...] = getattr(one, "attribute", ())
    return Condition(type(one).__name__, attribute[0] if len(attribute) == 1 else "", getattr(one, "value", None))
