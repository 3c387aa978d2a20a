"""One stream as it runs: a streaming query of Spark's, the transactions of its results, and how it is doing."""

from __future__ import annotations

import datetime
import json
import os
from collections.abc import Callable, Mapping
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructField, StructType

from barnabas.client.cluster import Cluster
from barnabas.client.groups import committed
from barnabas.client.transactional import TransactionalProducer
from barnabas.streams.query.definitions import StreamDefinition
from barnabas.streams.query.errors import QueryError
from barnabas.streams.query.health import Health
from barnabas.streams.query.reading import reader_options
from barnabas.streams.query.source_rows import PARTS
from barnabas.streams.source.names import CORRUPT
from barnabas.streams.source.offsets import from_wire, to_wire
from barnabas.streams.windows.checkpoint import Folder
from barnabas.streams.windows.plan import (
    AHEAD,
    MALFORMED,
    NO_TIME,
    OBSERVED,
    check,
    parsed,
    planned,
    source_schema,
)
from barnabas.streams.windows.sink import TransactionSink
from barnabas.streams.windows.source import FORMAT, read_mark, write_mark
from barnabas.wire.aliases import TopicPartition
from barnabas.wire.queries.messages import StreamStatus
from barnabas.wire.queries.writer import WRITER_ID
from barnabas.wire.streams.clauses import AT_ONCE, MAX_STATE_ROWS, Interval
from barnabas.wire.streams.keys import group_of
from barnabas.wire.streams.plan import StreamPlan

#: Of the source, for one batch.
MAX_BATCH_BYTES = 32 << 20
# After this long without a sign of life the broker aborts a transaction. A batch writes for some seconds at most.
_TRANSACTION_MS = 120_000


class Runner:
    """Starts and stops in one thread, which may take seconds; `look` and `told` are for another one."""

    def __init__(
        self,
        session: SparkSession,
        server: str,
        data_dir: str,
        writer_id: Callable[[], str],
        definition: StreamDefinition,
        trigger_ms: int,
    ) -> None:
        self._session, self._server, self._data_dir, self._writer_id = session, server, data_dir, writer_id
        self.definition, self._trigger_ms = definition, trigger_ms
        self.folder = Folder(data_dir, definition.topic_id, definition.run)
        self.health = Health()
        self._query: StreamingQuery | None = None
        self._producer: TransactionalProducer | None = None
        self._sink: TransactionSink | None = None
        self._batch = -1
        self._told_rows = 0
        self._watermark: int | None = None
        self._state_rows = self._late = self._ignored = 0
        self._data_at = 0.0
        self._max_delay = 0.0
        self._span_ms = self._delay_ms = 0
        self._most_state_rows = MAX_STATE_ROWS
        #: How far it is in its source.
        self.ends: dict[TopicPartition, int] = {}

    # --- starting and stopping ----------------------------------------------------------------------------------------

    def start(self, now: float) -> None:
        """Take the transactional id over and go on where the stream is. Raises QueryError, ClientError, and Spark's."""
        definition = self.definition
        clauses, stages = parsed(definition.text)
        checked = check(self._session, clauses, stages, definition.plan.values)
        self.folder.make()
        self._producer = self._take_over()
        found = committed(self._producer.cluster, group_of(definition.topic), [(definition.topic, 0)], stable=True)
        sink = TransactionSink(
            self._producer,
            self._server,
            definition.topic,
            definition.partitions,
            definition.max_batch_bytes,
            self.folder,
        )
        sink.next_batch = self.folder.first_batch(found.get((definition.topic, 0)))
        frame = source_frame(
            self._session, self._data_dir, self._server, definition.plan, checked.needed, self.folder.close_file
        )
        results = planned(self._session, clauses, stages, frame, definition.plan.values).results
        window = clauses.window
        self._span_ms = window.length_ms if isinstance(window, Interval) else window.gap_ms
        self._most_state_rows = clauses.max_state_rows
        self._delay_ms, self._max_delay = clauses.watermark_ms, clauses.max_delay_ms / 1000
        self._sink, self._told_rows, self._data_at = sink, 0, now
        self._query = (
            results.writeStream.outputMode("update" if clauses.trigger == AT_ONCE else "append")
            .option("checkpointLocation", self.folder.checkpoint)
            .trigger(processingTime=f"{self._trigger_ms} milliseconds")
            .foreachBatch(sink)
            .start()
        )

    def _take_over(self) -> TransactionalProducer:
        topic = self.definition.topic
        producer = TransactionalProducer(
            Cluster(self._server),
            f"{self._writer_id()}/{topic}",
            f"{WRITER_ID}/{topic}",
            timeout_ms=_TRANSACTION_MS,
        )
        producer.begin()
        return producer

    def stop(self) -> None:
        """End the query, and the transaction that it may have open. Raises ClientError."""
        query, self._query = self._query, None
        producer, self._producer = self._producer, None
        if query is not None:
            query.stop()
        if producer is not None:
            try:
                producer.begin()
            finally:
                producer.cluster.close()

    def abandon(self) -> None:
        """End the query with the driver: whoever comes next ends the transaction."""
        query, self._query = self._query, None
        if query is not None:
            try:
                query.stop()
            except Exception:  # the JVM may be gone
                pass

    # --- looking ------------------------------------------------------------------------------------------------------

    def look(self, now: float, source_ends: Mapping[TopicPartition, int]) -> str | None:
        """Take note of how it is doing; the reason if the query has ended by itself.

        Raises QueryError where it must not go on.
        """
        query, sink = self._query, self._sink
        if query is None or sink is None:
            return None
        failure = query.exception()
        if failure is not None or not query.isActive:
            return str(failure) if failure is not None else "the query has ended"
        last = query.lastProgress
        if last is not None:
            missed = last.batchId > self._batch + 1
            for progress in query.recentProgress if missed else [last]:
                self._note(progress, now)
        rows = sink.rows
        if rows != self._told_rows:
            self.health.ran(now, rows - self._told_rows, 0, 0.0)
            self._told_rows = rows
        if self._state_rows > self._most_state_rows:
            raise QueryError(
                f"its state has {self._state_rows:,} rows, more than MAX_STATE_ROWS ({self._most_state_rows:,}): drop "
                "the stream, and make it with fewer keys, shorter windows, a shorter WATERMARK, or a larger number"
            )
        self.count_lag(source_ends)
        self._close_quiet(now)
        return None

    def _note(self, progress: Any, now: float) -> None:
        watermark = progress.eventTime.get("watermark")
        if watermark is not None:
            self._watermark = _millis(watermark)
        if "addBatch" not in progress.durationMs or progress.batchId <= self._batch:
            return  # it only says that nothing has come
        self._batch = progress.batchId
        self.health.ran(now, 0, 0, progress.durationMs.get("triggerExecution", 0) / 1000)
        for operator in progress.stateOperators:
            self._state_rows = operator.numRowsTotal
            self._late += operator.numRowsDroppedByWatermark
        seen = progress.observedMetrics.get(OBSERVED)
        if seen is not None:
            self._ignored += seen[NO_TIME] + seen[AHEAD] + seen[MALFORMED]
        if progress.numInputRows:
            self._data_at = now
        for source in progress.sources:
            if source.endOffset:
                wire = json.loads(source.endOffset)
                self.ends, _ = from_wire({key: value for key, value in wire.items() if key != "#close"})

    def count_lag(self, source_ends: Mapping[TopicPartition, int]) -> None:
        """Take note of how far the source is."""
        plan = self.definition.plan
        begins = {(plan.source, number): start for number, start in enumerate(plan.starts)}
        at = begins | self.ends
        mine = {key: end for key, end in source_ends.items() if key[0] == plan.source}
        self.health.lag = sum(max(end - at.get(key, 0), 0) for key, end in mine.items())

    def _close_quiet(self, now: float) -> None:
        """Close the windows of a topic into which nothing has come for MAX_DELAY.

        The mark's time lies behind all windows that can be open: records have times up to the watermark plus its delay.
        """
        if not self._max_delay or self.health.lag or now - self._data_at < self._max_delay or not self._watermark:
            return
        last = self._watermark + self._delay_ms
        if last > read_mark(self.folder.close_file):  # else the last thing that came was a mark
            write_mark(self.folder.close_file, last + self._span_ms + self._delay_ms)
            self._data_at = now

    def told(self, now: float, state: str) -> StreamStatus:
        """The figures of the stream."""
        definition = self.definition
        told = self.health.told(now, definition.topic, definition.plan.source)
        return StreamStatus(
            topic=definition.topic,
            name=definition.name,
            source=definition.plan.source,
            state=state,
            lag=told.lag,
            rows=told.rows,
            rows_per_second=told.rows_per_second,
            batch_ms=told.batch_ms,
            watermark=self._watermark or None,
            state_rows=self._state_rows,
            late=self._late,
            ignored=self._ignored,
            last_error=told.last_error,
        )


def source_frame(
    session: SparkSession,
    data_dir: str,
    server: str,
    plan: StreamPlan,
    close_file: str,
    *,
    batch_bytes: int | None = None,
) -> DataFrame:
    """The rows of a stream's source, from where the stream begins. Raises QueryError."""
    schema = source_schema(plan.values)
    starts = {(plan.source, number): start for number, start in enumerate(plan.starts)}
    options = {
        "path": data_dir,
        "topics": plan.source,
        "bootstrap.servers": server,
        "startingOffsets": json.dumps(to_wire(starts)),
        "maxBytesPerTrigger": str(batch_bytes or MAX_BATCH_BYTES),
        "failOnDataLoss": "false",
        "closeFile": close_file,
    }
    if CORRUPT in schema.names:
        options |= reader_options(plan.values)
        read = schema
    else:
        options["includeHeaders"] = "true"
        fields = [StructField(f.name[1:] if f.name in PARTS else f.name, f.dataType) for f in schema.fields]
        read = StructType(fields)
    if not os.path.isdir(data_dir):
        raise QueryError(f"there is no folder {data_dir}")
    return session.readStream.format(FORMAT).options(**options).schema(read).load().toDF(*schema.names)


def _millis(text: str) -> int:
    """A time as Spark's progress has it, in ms since 1970."""
    at = datetime.datetime.fromisoformat(text)
    return int(at.timestamp() * 1000)
