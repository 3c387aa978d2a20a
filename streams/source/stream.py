"""The reader of streaming queries: offsets of micro-batches, and their splits."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
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

from barnabas.streams.source.batch import SplitPartition
from barnabas.streams.source.offsets import LATEST, Position, from_wire, share, to_wire
from barnabas.streams.source.options import Options
from barnabas.streams.source.rows import Rows
from barnabas.streams.wal import DataLossError, LogDir, NewTopicError, NotReadyError, Planner, WalError
from barnabas.wire.aliases import TopicPartition


def changed(ids: Mapping[str, str], ids_now: Mapping[str, str]) -> set[str]:
    """The topics whose ids have changed."""
    return {topic for topic, topic_id in ids.items() if ids_now.get(topic, topic_id) != topic_id}


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads a streaming query. Offsets are {topic: {partition: next offset}}, plus the topics' ids.

    Spark keeps one reader for as long as the query runs.
    """

    def __init__(self, options: Options, rows: Rows) -> None:
        if options.ending is not None:
            raise WalError("endingOffsets and endingTimestamp are for batch queries: leave them out")
        self._options, self._rows = options, rows
        self._opened: tuple[LogDir, Planner] | None = None
        self._target: dict[TopicPartition, int] | None = None
        self._seen: dict[TopicPartition, tuple[int, int]] = {}

    def _open(self) -> tuple[LogDir, Planner]:
        if self._opened is None:
            options = self._options
            log_dir = LogDir(options.path, bootstrap=options.bootstrap)
            planner = Planner(log_dir, split_bytes=options.split_bytes, fail_on_data_loss=options.fail_on_data_loss)
            self._opened = log_dir, planner
        return self._opened

    def _ranges(self) -> dict[TopicPartition, tuple[int, int]]:
        """The offsets that can be read now. While a broker starts or stops under a running query, nothing is new."""
        log_dir, _ = self._open()
        try:
            self._seen = log_dir.ranges(self._options.keys(log_dir))
        except NotReadyError:
            if not self._seen:
                raise
        return self._seen

    def _ids(self, keys: Iterable[TopicPartition]) -> dict[str, str]:
        """The ids of the partitions' topics, if they have any."""
        log_dir, _ = self._open()
        one_of_each = {key[0]: key for key in keys}
        found = {topic: log_dir.topic_id(key) for topic, key in one_of_each.items()}
        return {topic: topic_id for topic, topic_id in found.items() if topic_id}

    def _from_checkpoint(self, wire: dict[str, Any]) -> tuple[dict[TopicPartition, int], dict[str, str]]:
        """Offsets and topics' ids. Raises WalError if they are from another query."""
        offsets, ids = from_wire(wire)
        for topic, _ in offsets:
            if not self._options.reads(topic):
                raise WalError(
                    f"the checkpoint is of a query that reads {topic}, and this one does not: "
                    "give this one a checkpointLocation of its own"
                )
        return offsets, ids

    def initialOffset(self) -> dict[str, Any]:
        """The start of a new query. Raises WalError."""
        log_dir, _ = self._open()
        position = self._options.starting or Position(LATEST)
        loss = self._options.fail_on_data_loss
        offsets = position.resolve("startingOffsets", log_dir, self._ranges(), fail_on_data_loss=loss)
        return to_wire(offsets, self._ids(offsets))

    def getDefaultReadLimit(self) -> ReadLimit:
        """Spark passes one limit; if both are set, `latestOffset` also applies the other one."""
        if self._options.max_offsets:
            return ReadMaxRows(self._options.max_offsets)
        if self._options.max_bytes:
            return ReadMaxBytes(self._options.max_bytes)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        """Remember the end: later records are for the next run."""
        self._target = {key: end for key, (_, end) in self._ranges().items()}

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """The last known ends, for `latestOffset` in the progress. The lag is their distance to `endOffset`."""
        return to_wire({key: end for key, (_, end) in self._seen.items()}) or None

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """The end of the next micro-batch. A partition or topic that is new since `start` begins with its first offset.

        Raises DataLossError if the log ends before `start`, or belongs to a new topic of the same name.
        """
        began, ids = self._from_checkpoint(start)
        ranges = self._ranges()
        ids_now = ids | self._ids(ranges)
        renewed = changed(ids, ids_now)
        backlog: dict[TopicPartition, tuple[int, int]] = {}
        for key, (first, end) in ranges.items():
            if self._target is not None:
                end = min(end, self._target.get(key, first))
            at = began.get(key, first)
            if key[0] in renewed:
                self._lost(NewTopicError(*key, f"the query is at offset {at} of a topic that is gone"))
                at = first
            if at < first:
                self._lost(DataLossError(*key, f"offsets {at} to {first - 1} are gone"))
            if at > end and self._target is None:
                self._lost(DataLossError(*key, f"the query is at offset {at}, the log ends at {end}"))
            backlog[key] = at, max(at, end)
        for key in sorted(began.keys() - backlog.keys()):
            self._lost(DataLossError(*key, "the partition is gone"))
        if isinstance(limit, ReadMaxRows):
            backlog = share(backlog, limit.max_rows)
        if isinstance(limit, ReadMaxBytes):
            backlog = self._open()[1].within_bytes(backlog, limit.max_bytes)
        elif isinstance(limit, ReadMaxRows) and self._options.max_bytes:
            backlog = self._open()[1].within_bytes(backlog, self._options.max_bytes)
        kept = {key: offset for key, offset in began.items() if key[0] not in renewed}
        return to_wire(kept | {key: end for key, (_, end) in backlog.items()}, ids_now)

    def _lost(self, loss: DataLossError) -> None:
        if self._options.fail_on_data_loss:
            raise loss

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """The splits between two offsets. Raises DataLossError if records between them are gone."""
        began, ids_before = self._from_checkpoint(start)
        ends, ids = self._from_checkpoint(end)
        renewed = changed(ids_before, ids)
        began = {key: offset for key, offset in began.items() if key[0] not in renewed}
        _, planner = self._open()
        new = self._first_offsets(ends.keys() - began.keys())
        ranges: Mapping[TopicPartition, tuple[int, int]] = {
            key: (began.get(key, new.get(key, 0)), hi) for key, hi in ends.items()
        }
        # The tasks check whether it is still the checkpoint's topic.
        splits = [split._replace(topic_id=ids.get(split.topic, split.topic_id)) for split in planner.plan(ranges)]
        return [SplitPartition(split) for split in splits]

    def _first_offsets(self, keys: set[TopicPartition]) -> dict[TopicPartition, int]:
        """The first offsets of partitions that were created while the query ran."""
        if not keys:
            return {}
        return {key: first for key, (first, _) in self._open()[0].ranges(sorted(keys)).items()}

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a split."""
        assert isinstance(partition, SplitPartition)
        yield from self._rows.batches(partition.split)
