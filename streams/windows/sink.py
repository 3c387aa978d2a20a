"""A batch's results and the stream's progress, in one Kafka transaction.

Spark calls a sink at least once for each batch, with the same offsets and state. The committed offset of the stream's
group is the number of the next batch: a batch below it is in, and its rows are made for the state only. A batch that
failed half-way was aborted when the stream took its transactional id over again. So nothing of a first call is left
when a second one writes, and the two need not give the same rows in the same order.

Invariant: rows of one transaction are written by one attempt of one task. A second attempt ends the batch.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import msgspec
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame

from barnabas.client.cluster import Cluster
from barnabas.client.errors import check
from barnabas.client.groups import Committed
from barnabas.client.partitioner import murmur2
from barnabas.client.produce import Batch, produce
from barnabas.client.transactional import NOT_YET, TransactionalProducer
from barnabas.streams.encode import encode
from barnabas.streams.windows.checkpoint import Folder
from barnabas.wire.streams.keys import group_of

REPORT = "written bigint"
_REPORT_SCHEMA = pa.schema([pa.field("written", pa.int64())])
_FLUSH_BYTES = 4 << 20
_TIMEOUT_MS = 60_000
_AGAIN_SECONDS, _PATIENCE_SECONDS = 0.005, 30.0
_clusters: dict[str, Cluster] = {}  # a worker serves many tasks


class TransactionSink:
    """What Spark calls for each batch of a stream."""

    def __init__(
        self, producer: TransactionalProducer, server: str, topic: str, partitions: int, max_bytes: int, folder: Folder
    ) -> None:
        self._producer, self._server, self._topic, self._folder = producer, server, topic, folder
        self._partitions, self._max_bytes = partitions, max_bytes
        self.next_batch = 0
        self.rows = 0

    def __call__(self, results: DataFrame, batch: int) -> None:
        """Write a batch. Raises what ends the query: it is begun anew then."""
        if batch < self.next_batch:
            results.write.format("noop").mode("overwrite").save()  # its state is made by its rows being made
            return
        producer = self._producer
        writer = Writer(
            self._server,
            self._topic,
            self._partitions,
            self._max_bytes,
            producer.transactional_id,
            producer.producer_id,
            producer.epoch,
        )
        written = sum(row.written for row in results.mapInArrow(writer.__call__, REPORT).collect())
        key = (self._topic, 0)
        producer.commit_offset(group_of(self._topic), key, Committed(batch + 1, self._folder.progress().encode()))
        producer.end(commit=True)
        self.next_batch = batch + 1
        self.rows += written


class Writer(msgspec.Struct, frozen=True):
    """The task's side: rows of key, value and timestamp to the partitions of their keys."""

    server: str
    topic: str
    partitions: int
    max_bytes: int
    transactional_id: str
    producer_id: int
    epoch: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write all rows of the task; their number."""
        context = TaskContext.get()
        if context is not None and context.attemptNumber() > 0:
            raise RuntimeError("another attempt may have written some of the rows: the batch is written anew")
        log = _Log(self)
        for batch in batches:
            log.add(batch)
        log.flush()
        yield pa.RecordBatch.from_pylist([{"written": log.written}], schema=_REPORT_SCHEMA)


class _Log:
    """Rows that wait for each partition, and the numbers of those that are sent."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._rows: list[pa.RecordBatch] = []
        self._size = 0
        self._of_key: dict[bytes, int] = {}
        self._sequences: dict[int, int] = {}
        self.written = 0

    def add(self, rows: pa.RecordBatch) -> None:
        """Take rows; those that waited are sent when there are many."""
        if rows.num_rows:
            self._rows.append(rows)
            self._size += rows.nbytes
        if self._size >= _FLUSH_BYTES:
            self.flush()

    def flush(self) -> None:
        """Send what waits."""
        if not self._rows:
            return
        rows = pa.Table.from_batches(self._rows).combine_chunks().to_batches()[0]
        self._rows, self._size = [], 0
        places = [self._partition(key) for key in rows.column("key").to_pylist()]
        parts = dict.fromkeys(places)
        cluster = _clusters.pop(self._writer.server, None) or Cluster(self._writer.server)
        queues = {}
        for partition in parts:
            mine = rows.take(pa.array([row for row, place in enumerate(places) if place == partition]))
            queues[partition] = self._batches(partition, mine)
        while queues:
            sending = {partition: next(queue, None) for partition, queue in queues.items()}
            queues = {partition: queue for partition, queue in queues.items() if sending[partition] is not None}
            self._send(cluster, [Batch(self._writer.topic, p, data) for p, data in sending.items() if data is not None])
        self.written += rows.num_rows
        _clusters[self._writer.server] = cluster

    def _partition(self, key: bytes | None) -> int:
        if key is None:
            return 0
        found = self._of_key.get(key)
        if found is None:
            found = self._of_key[key] = murmur2(key) % self._writer.partitions
        return found

    def _batches(self, partition: int, rows: pa.RecordBatch) -> Iterator[bytes]:
        numbered = rows.append_column("offset", pa.array(range(rows.num_rows), pa.int64()))
        sequence = self._sequences.get(partition, 0)
        self._sequences[partition] = sequence + rows.num_rows
        for batch in encode(
            numbered,
            base_offset=0,
            producer_id=self._writer.producer_id,
            producer_epoch=self._writer.epoch,
            max_bytes=self._writer.max_bytes,
            transaction_sequence=sequence,
        ):
            yield bytes(8) + batch.data[8:]

    def _send(self, cluster: Cluster, batches: list[Batch]) -> None:
        """Send a batch for each partition. While the transaction before is being completed, it is tried again."""
        until = time.monotonic() + _PATIENCE_SECONDS
        while batches:
            told = produce(cluster, batches, timeout_ms=_TIMEOUT_MS, transactional_id=self._writer.transactional_id)
            left = [batch for batch in batches if told[batch.topic, batch.partition].error_code in NOT_YET]
            for batch in batches:
                answer = told[batch.topic, batch.partition]
                if batch not in left or time.monotonic() > until:
                    check(answer.error_code, f"{batch.topic}-{batch.partition}", answer.error_message)
            batches = left
            if batches:
                time.sleep(_AGAIN_SECONDS)
