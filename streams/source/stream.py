"""The reader of streaming queries: offsets of micro-batches, and their splits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from streams.source.batch import SplitPartition
from streams.source.offsets import LATEST, Position, from_wire, share, to_wire
from streams.source.options import Options
from streams.source.rows import Rows
from streams.wal import DataLossError, Key, LogDir, NotReadyError, Planner, WalError


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Offsets are {topic: {partition: next offset}}. Spark keeps one of these for as long as the query runs."""

    def __init__(self, options: Options, rows: Rows) -> None:
        if options.ending is not None:
            raise WalError("endingOffsets and endingTimestamp are for batch queries: leave them out")
        self._options, self._rows = options, rows
        self._opened: tuple[LogDir, Planner] | None = None
        self._target: dict[Key, int] | None = None
        self._seen: dict[Key, tuple[int, int]] = {}

    def _open(self) -> tuple[LogDir, Planner]:
        if self._opened is None:
            options = self._options
            log_dir = LogDir(options.path, bootstrap=options.bootstrap)
            planner = Planner(
                log_dir, split_bytes=options.split_bytes, fail_on_data_loss=options.fail_on_data_loss
            )  # fmt: skip
            self._opened = log_dir, planner
        return self._opened

    def _ranges(self) -> dict[Key, tuple[int, int]]:
        """What can be read now. While a broker starts or stops under a running query, nothing is new."""
        log_dir, _ = self._open()
        try:
            self._seen = log_dir.ranges(self._options.keys(log_dir))
        except NotReadyError:
            if not self._seen:
                raise
        return self._seen

    def initialOffset(self) -> dict[str, Any]:
        """Where a new query begins. Raises WalError."""
        log_dir, _ = self._open()
        position = self._options.starting or Position(LATEST)
        loss = self._options.fail_on_data_loss
        return to_wire(position.resolve("startingOffsets", log_dir, self._ranges(), fail_on_data_loss=loss))

    def getDefaultReadLimit(self) -> ReadLimit:
        """Spark takes one limit; where both are set, `latestOffset` looks at the other one too."""
        if self._options.max_offsets:
            return ReadMaxRows(self._options.max_offsets)
        if self._options.max_bytes:
            return ReadMaxBytes(self._options.max_bytes)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        """Remember the end: what comes later is for the next run."""
        self._target = {key: end for key, (_, end) in self._ranges().items()}

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """The ends last seen, for `latestOffset` in the progress: less `endOffset`, that is the lag."""
        return to_wire({key: end for key, (_, end) in self._seen.items()}) or None

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """The end of the next micro-batch. A partition that is new since `start` begins with its first offset.

        Raises DataLossError when the log ends before `start`.
        """
        began = from_wire(start)
        backlog: dict[Key, tuple[int, int]] = {}
        for key, (first, end) in self._ranges().items():
            if self._target is not None:
                end = min(end, self._target.get(key, first))
            at = began.get(key, first)
            if at < first:
                self._lost(key, f"offsets {at} to {first - 1} are gone")
            if at > end and self._target is None:
                self._lost(key, f"the query is at offset {at}, the log ends at {end}")
            backlog[key] = at, max(at, end)
        for key in sorted(began.keys() - backlog.keys()):
            self._lost(key, "the partition is gone")
        if isinstance(limit, ReadMaxRows):
            backlog = share(backlog, limit.max_rows)
        if isinstance(limit, ReadMaxBytes):
            backlog = self._open()[1].within_bytes(backlog, limit.max_bytes)
        elif isinstance(limit, ReadMaxRows) and self._options.max_bytes:
            backlog = self._open()[1].within_bytes(backlog, self._options.max_bytes)
        return to_wire(began | {key: end for key, (_, end) in backlog.items()})

    def _lost(self, key: Key, what: str) -> None:
        if self._options.fail_on_data_loss:
            raise DataLossError(*key, what)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """The splits between two offsets. Raises DataLossError when records between them are gone."""
        began, ends = from_wire(start), from_wire(end)
        _, planner = self._open()
        new = self._first_offsets(ends.keys() - began.keys())
        ranges: Mapping[Key, tuple[int, int]] = {
            key: (began.get(key, new.get(key, 0)), hi) for key, hi in ends.items()
        }  # fmt: skip
        return [SplitPartition(split) for split in planner.plan(ranges)]

    def _first_offsets(self, keys: set[Key]) -> dict[Key, int]:
        """Where partitions begin that came up while the query ran."""
        if not keys:
            return {}
        return {key: first for key, (first, _) in self._open()[0].ranges(sorted(keys)).items()}

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a split."""
        assert isinstance(partition, SplitPartition)
        yield from self._rows.batches(partition.split)
