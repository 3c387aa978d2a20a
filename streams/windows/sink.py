"""A batch's results and the progress of its streams, in one Kafka transaction.

Spark calls a sink at least once for each batch, with the same offsets and state. The committed offset of each stream is
the number of the next batch: a batch below it is already written, and runs again only for its state. A batch that
failed half-way was aborted when the query took over its transactional id again. So nothing of a first call is left when
a second one writes, and the two need not give the same rows in the same order.

Invariant: rows of one transaction are written by one attempt of one task. A second attempt ends the batch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import msgspec
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame

from barnabas.client.cluster import Cluster
from barnabas.client.errors import check
from barnabas.client.groups import Committed
from barnabas.client.partitioner import murmur2
from barnabas.client.produce import Batch
from barnabas.client.transactional import TransactionalProducer, write
from barnabas.streams.encode import encode
from barnabas.streams.query.catalyst import map_in_arrow
from barnabas.streams.windows.checkpoint import Folder
from barnabas.streams.windows.groups import Joined
from barnabas.streams.windows.limits import Limits, Pace
from barnabas.wire.aliases import TopicPartition
from barnabas.wire.streams.keys import GROUP

REPORT = "topic string, written bigint"
_REPORT_SCHEMA = pa.schema([pa.field("topic", pa.string()), pa.field("written", pa.int64())])
_FLUSH_BYTES = 4 << 20
_TIMEOUT_MS = 60_000
_PATIENCE_SECONDS = 30.0
# A worker runs many tasks.
_clusters: dict[str, Cluster] = {}
_paces: dict[tuple[str, Limits], Pace] = {}


class Target(NamedTuple):
    """The topic that a stream writes to."""

    topic: str
    partitions: int
    max_bytes: int


class TransactionSink:
    """Spark calls this for each batch of a query's streams."""

    def __init__(
        self,
        producer: TransactionalProducer,
        server: str,
        targets: Mapping[Joined, Target],
        folder: Folder,
        note: Callable[[int], None],
        results_of: Callable[[DataFrame, int], DataFrame],
        limits: Limits,
        begins: Callable[[], None] = lambda: None,
    ) -> None:
        """`note` is called with each batch before its commit; `results_of` extracts the results from its rows.

        `begins` is called in the first batch, while Spark waits for it.
        """
        self._producer, self._server, self._targets, self._folder = producer, server, targets, folder
        self._note, self._results_of, self._limits = note, results_of, limits
        self._begins: Callable[[], None] | None = begins
        self.next_batch = 0
        #: How many results have been written, by topic.
        self.rows = dict.fromkeys((target.topic for target in targets.values()), 0)

    def __call__(self, rows: DataFrame, batch: int) -> None:
        """Write a batch. Whatever it raises ends the query, which is then started again."""
        if self._begins is not None:
            self._begins()
            self._begins = None
        if batch < self.next_batch:
            rows.write.format("noop").mode("overwrite").save()  # computing its rows updates its state
            return
        producer = self._producer
        targets = {member.number: target for member, target in self._targets.items()}
        identity = producer.transactional_id, producer.producer_id, producer.epoch
        writer = Writer(self._server, targets, *identity, self._limits)
        reports = map_in_arrow(self._results_of(rows, batch), writer.__call__, REPORT).collect()
        positions = {
            (target.topic, 0): Committed(batch + 1, self._folder.progress(member).encode())
            for member, target in self._targets.items()
        }
        self._folder.sync()
        self._note(batch)
        producer.commit_offsets(GROUP, positions)
        producer.end(commit=True)
        self.next_batch = batch + 1
        for report in reports:
            self.rows[report.topic] += report.written


class Writer(msgspec.Struct, frozen=True):
    """The task's side: writes rows of stream, key, value and timestamp to the partitions of their keys."""

    server: str
    targets: dict[int, Target]
    transactional_id: str
    producer_id: int
    epoch: int
    limits: Limits

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write all rows of the task. Yields their number by topic."""
        context = TaskContext.get()
        if context is not None and context.attemptNumber() > 0:
            raise RuntimeError("another attempt may have written some of the rows: the batch is written anew")
        log = _Log(self)
        for batch in batches:
            log.add(batch)
        log.flush()
        told = [{"topic": topic, "written": written} for topic, written in log.written.items()]
        yield pa.RecordBatch.from_pylist(told, schema=_REPORT_SCHEMA)


class _Log:
    """The waiting rows of each partition, and the numbers of sent ones."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._rows: list[pa.RecordBatch] = []
        self._size = 0
        self._of_key: dict[tuple[int, bytes], TopicPartition] = {}
        self._sequences: dict[TopicPartition, int] = {}
        self.written: Counter[str] = Counter()
        self._pace = _paces.setdefault((writer.transactional_id, writer.limits), Pace(writer.limits))
        self._pace.begin()

    def add(self, rows: pa.RecordBatch) -> None:
        """Take rows. The waiting ones are sent when there are many."""
        if rows.num_rows:
            self._rows.append(rows)
            self._size += rows.nbytes
        if self._size >= _FLUSH_BYTES:
            self.flush()

    def flush(self) -> None:
        """Send the waiting rows."""
        if not self._rows:
            return
        rows = pa.Table.from_batches(self._rows).combine_chunks().to_batches()[0]
        self._rows, self._size = [], 0
        streams, keys = rows.column("stream").to_pylist(), rows.column("key").to_pylist()
        found: dict[TopicPartition, list[int]] = {}
        sizes = {}
        for row, (stream, key) in enumerate(zip(streams, keys, strict=True)):
            place = self._partition(stream, key)
            found.setdefault(place, []).append(row)
            sizes[place] = self._writer.targets[stream].max_bytes
        rows = rows.drop_columns(["stream"])
        cluster = _clusters.pop(self._writer.server, None) or Cluster(self._writer.server)
        queues = {place: self._batches(place, rows.take(pa.array(mine)), sizes[place]) for place, mine in found.items()}
        while queues:
            sending = {place: next(queue, None) for place, queue in queues.items()}
            queues = {place: queue for place, queue in queues.items() if sending[place] is not None}
            self._send(cluster, [Batch(*place, data) for place, data in sending.items() if data is not None])
        for (topic, _), mine in found.items():
            self.written[topic] += len(mine)
        _clusters[self._writer.server] = cluster

    def _partition(self, stream: int, key: bytes | None) -> TopicPartition:
        target = self._writer.targets[stream]
        if key is None:
            return target.topic, 0
        found = self._of_key.get((stream, key))
        if found is None:
            found = self._of_key[stream, key] = target.topic, murmur2(key) % target.partitions
        return found

    def _batches(self, place: TopicPartition, rows: pa.RecordBatch, max_bytes: int) -> Iterator[bytes]:
        numbered = rows.append_column("offset", pa.array(range(rows.num_rows), pa.int64()))
        sequence = self._sequences.get(place, 0)
        self._sequences[place] = sequence + rows.num_rows
        for batch in encode(
            numbered,
            base_offset=0,
            producer_id=self._writer.producer_id,
            producer_epoch=self._writer.epoch,
            max_bytes=max_bytes,
            transaction_sequence=sequence,
        ):
            yield bytes(8) + batch.data[8:]

    def _send(self, cluster: Cluster, batches: list[Batch]) -> None:
        """Send a batch for each partition."""
        if not batches:
            return
        self._pace.wait({(batch.topic, batch.partition): len(batch.data) for batch in batches})
        told = write(
            cluster, self._writer.transactional_id, batches, patience=_PATIENCE_SECONDS, timeout_ms=_TIMEOUT_MS
        )
        for (topic, partition), answer in told.items():
            check(answer.error_code, f"{topic}-{partition}", answer.error_message)
