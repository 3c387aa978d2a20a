"""In a task: writes the rows that the SELECTs gave as batches with their source's offsets, and sends them to the
broker.

A query's results continue where its topic ends. Rows before that offset were already written by a failed attempt and
are dropped. When the mark arrives, the last batch is extended to the tick's end, or an empty batch covers the offsets
up to it. The results of a query over a pattern of topics have their own offsets, and headers that name their source's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from barnabas.client.admin import create_topic
from barnabas.client.cluster import Cluster
from barnabas.client.errors import check
from barnabas.client.offsets import LATEST, list_offsets
from barnabas.client.produce import Batch, Sent, answers, post
from barnabas.streams.encode import Encoded, empty, encode
from barnabas.streams.query.errors import MalformedRecordError, TakenOverError
from barnabas.streams.query.tick import Part, Tick, current
from barnabas.wire.batch import seal
from barnabas.wire.errors import ErrorCode
from barnabas.wire.queries.keys import DEAD_LETTER_OF, dead_letters_of

REASON_HEADER = "barnabas.error"
ROW, MALFORMED, MARK = 0, 1, 2
SOURCE_HEADERS = ("barnabas.source.topic", "barnabas.source.partition", "barnabas.source.offset")
#: What a task reports to the driver for each query.
REPORT = "query int, task int, written bigint, dead bigint, next bigint"
REPORT_SCHEMA = pa.schema(
    [
        pa.field("query", pa.int32()),
        pa.field("task", pa.int32()),
        pa.field("written", pa.int64()),
        pa.field("dead", pa.int64()),
        pa.field("next", pa.int64()),
    ]
)
_FLUSH_BYTES = 4 << 20
_TIMEOUT_MS = 60_000
_LAST_DELTA_AT = 23
_clusters: dict[str, Cluster] = {}  # a worker runs many tasks


class Output(msgspec.Struct, frozen=True):
    """One query of the job: its topic, and what to do with records that do not fit the schema."""

    topic: str
    parses: bool
    on_error: str
    max_batch_bytes: int = 1 << 20
    merges: int = 0  # the number of partitions if the topic is over a pattern and has its own offsets; otherwise 0


class Report(msgspec.Struct, frozen=True):
    """What a task did for one query: the rows written, the dead letters, and the offset reached."""

    query: int
    task: int
    written: int
    dead: int
    next: int


class Sink(msgspec.Struct, frozen=True):
    """The writing side of a job: the broker, and the outputs in the order of the rows' query numbers."""

    server: str
    outputs: list[Output]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write all rows of a task. Yields one row for each query with what was done."""
        tick, task, again = current()
        writer: Writer | None = None
        for batch in batches:
            if batch.num_rows:
                writer = writer or Writer(self, tick, task, again)
                writer.take(batch)
        if writer is not None:
            yield rows_of(writer.reports())


class Writer:
    """One task's writing."""

    def __init__(self, sink: Sink, tick: Tick, task: int, again: bool) -> None:
        self._sink, self._tick, self._task = sink, tick, task
        self._part = part = tick.parts[task]
        self.cluster = _take_cluster(sink.server)
        self._outputs = [_Log.of(o, o.topic, part, end) for o, end in zip(sink.outputs, part.ends, strict=True)]
        if again:
            self._look_again()
        self._letters: dict[int, _Log] = {}
        self._posted: tuple[list[Sent], list[_Log]] | None = None
        self._done = False

    def _look_again(self) -> None:
        """Find out from the topics what a failed attempt has written. Over a pattern, only the driver can do so."""
        if any(output.merges for output in self._sink.outputs):
            raise RuntimeError("the driver plans anew")
        told = list_offsets(self.cluster, [(log.topic, log.partition) for log in self._outputs], LATEST)
        for log in self._outputs:
            log.next = told[log.topic, log.partition]

    def take(self, batch: pa.RecordBatch) -> None:
        """Take rows of all kinds, in the order of their offsets."""
        kinds, queries = batch.column("kind"), batch.column("query")
        malformed = batch.filter(pc.equal(kinds, MALFORMED))
        if malformed.num_rows:
            self.malformed(malformed)
        for query in pc.unique(queries).to_pylist():
            if query >= 0:
                self.results(query, batch.filter(pc.equal(queries, query)))
        if pc.any(pc.equal(kinds, MARK)).as_py():
            self.finish()

    def results(self, query: int, rows: pa.RecordBatch) -> None:
        """Take one query's results, in the order of their offsets. Malformed records before them have been taken."""
        log = self._outputs[query]
        log.add(rows)
        if log.size >= _FLUSH_BYTES:
            # Dead letters go first: a new attempt takes them for written once the results have passed them.
            self._write([letters for letters in [self._letters.get(query)] if letters is not None])
            self._write([log])

    def finish(self) -> None:
        """All rows of the task were taken."""
        self._write(list(self._letters.values()))
        self._write(self._outputs, upto=self._part.hi)
        self._settle()
        self._done = True

    def malformed(self, rows: pa.RecordBatch) -> None:
        """Take records that do not fit the schema, in the order of their offsets, with the reasons."""
        for query, output in enumerate(self._sink.outputs):
            if not output.parses or output.on_error == "skip":
                continue
            fresh = rows.filter(pc.greater_equal(rows.column("offset"), self._outputs[query].next))
            if not fresh.num_rows:
                continue
            if output.on_error == "fail":
                at, reason = fresh.column("offset")[0].as_py(), fresh.column("reason")[0].as_py()
                raise MalformedRecordError(
                    f"{self._part.source}-{self._part.partition}: the record at offset {at} does not fit: {reason}"
                )
            if query not in self._letters:
                self._letters[query] = self._open_letters(query, output)
            self._letters[query].add(_with_reasons(fresh))

    def _open_letters(self, query: int, output: Output) -> _Log:
        self._settle()
        name = dead_letters_of(output.topic)
        made = create_topic(self.cluster, name, {DEAD_LETTER_OF: output.topic})
        if made.error_code != ErrorCode.TOPIC_ALREADY_EXISTS:
            check(made.error_code, f"Topic {name}", made.error_message)
        if output.merges:
            return _Log.of(output, name, self._part, self._part.dead[query])
        key = (name, self._part.partition)
        return _Log.of(output, name, self._part, list_offsets(self.cluster, [key], LATEST)[key])

    def _write(self, logs: list[_Log], *, upto: int | None = None) -> None:
        """Send what the logs hold, batch by batch: each log's batches in order, the logs in parallel."""
        queues = [(log, log.batches(self._tick.producer_id, upto)) for log in logs]
        while queues:
            sending = [(log, batch) for log, batches in queues if (batch := next(batches, None)) is not None]
            if not sending:
                return
            self._send(sending)
            queues = [(log, batches) for log, batches in queues if any(log is sent for sent, _ in sending)]

    def _send(self, batches: list[tuple[_Log, Encoded]]) -> None:
        """Send a request after the previous one was answered. While the broker writes, the next rows are read.

        A sent request counts as written. If it was not, its answer raises before anything else is sent.
        """
        self._settle()
        sending = [Batch(log.topic, log.partition, batch.data) for log, batch in batches]
        sent = post(self.cluster, sending, timeout_ms=_TIMEOUT_MS, transactional_id=self._tick.writer_id)
        self._posted = sent, [log for log, _ in batches]
        for log, batch in batches:
            log.written(batch)

    def _settle(self) -> None:
        """Wait for the answer to the last request."""
        if self._posted is None:
            return
        (sent, logs), self._posted = self._posted, None
        told = answers(sent)
        for log in logs:
            part = told[log.topic, log.partition]
            code, message = part.error_code, part.error_message
            if code in (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED):
                raise TakenOverError(message or "another driver writes")
            check(code, f"{log.topic}-{log.partition}", message)

    def reports(self) -> list[Report]:
        """What was written. The connections are returned. Raises RuntimeError if the rows ended before their mark."""
        if not self._done:
            raise RuntimeError("the reader of this task has failed")
        _clusters[self._sink.server] = self.cluster
        letters = [self._letters[query].count if query in self._letters else 0 for query in range(len(self._outputs))]
        return [
            Report(query, self._task, log.count, dead, log.next)
            for query, (log, dead) in enumerate(zip(self._outputs, letters, strict=True))
        ]


def rows_of(reports: Sequence[Report]) -> pa.RecordBatch:
    """Reports in the form that a task returns to Spark."""
    return pa.RecordBatch.from_pylist([msgspec.structs.asdict(report) for report in reports], schema=REPORT_SCHEMA)


class _Log:
    """A partition that is written to: the source offset up to which it is complete, and the waiting rows."""

    def __init__(self, topic: str, partition: int, next_offset: int, max_batch_bytes: int) -> None:
        self.topic, self.partition, self.next, self._max_batch_bytes = topic, partition, next_offset, max_batch_bytes
        self.size = self.count = 0
        self._rows: list[pa.RecordBatch] = []

    @staticmethod
    def of(output: Output, topic: str, part: Part, next_offset: int) -> _Log:
        """The log of a query's results, or of its dead letters, for one task."""
        if output.merges:
            partition = part.partition % output.merges
            return _MergedLog(topic, partition, next_offset, output.max_batch_bytes, part)
        return _Log(topic, part.partition, next_offset, output.max_batch_bytes)

    def add(self, rows: pa.RecordBatch) -> None:
        """Add rows, except those already written."""
        if rows.column("offset")[0].as_py() < self.next:
            rows = rows.filter(pc.greater_equal(rows.column("offset"), self.next))
        if rows.num_rows:
            self._rows.append(rows)
            self.size += rows.nbytes

    def _taken(self) -> list[pa.RecordBatch]:
        """The waiting rows as one batch: if a query lets few through, each added batch has only some."""
        rows, self._rows, self.size = self._rows, [], 0
        whole: list[pa.RecordBatch] = pa.Table.from_batches(rows).combine_chunks().to_batches() if rows else []
        return whole

    def batches(self, producer_id: int, upto: int | None) -> Iterator[Encoded]:
        """Batches of all waiting rows. With `upto`, the log ends there afterwards."""
        held: Encoded | None = None
        for part in self._taken():
            for batch in encode(
                part,
                base_offset=held.next_offset if held else self.next,
                producer_id=producer_id,
                producer_epoch=0,
                max_bytes=self._max_batch_bytes,
            ):
                if held is not None:
                    yield held
                held = batch
        if upto is not None:
            if held is None and self.next < upto:
                held = empty(self.next, upto, producer_id=producer_id, producer_epoch=0, timestamp_ms=-1)
            elif held is not None and held.next_offset < upto:
                held = _stretched(held, upto)
        if held is not None:
            yield held

    def written(self, batch: Encoded) -> None:
        """A batch was sent to the broker."""
        self.next = batch.next_offset
        self.count += batch.count


class _MergedLog(_Log):
    """A partition to which several tasks write in no particular order: the broker assigns the offsets."""

    def __init__(self, topic: str, partition: int, next_offset: int, max_batch_bytes: int, part: Part) -> None:
        super().__init__(topic, partition, next_offset, max_batch_bytes)
        self._part = part

    def batches(self, producer_id: int, upto: int | None) -> Iterator[Encoded]:
        for part in self._taken():
            sources = part.column("offset")
            own = pa.array(range(len(part)), pa.int64())
            named = with_headers(
                part.set_column(part.schema.get_field_index("offset"), "offset", own),
                [self._names(offset) for offset in sources.to_pylist()],
            )
            for batch in encode(
                named, base_offset=0, producer_id=producer_id, producer_epoch=0, max_bytes=self._max_batch_bytes
            ):
                yield _at_zero(batch)._replace(next_offset=sources[batch.next_offset - 1].as_py() + 1)
        if upto is not None:
            self.next = upto

    def _names(self, offset: int) -> list[dict[str, Any]]:
        told = (self._part.source, str(self._part.partition), str(offset))
        return [{"key": key, "value": text.encode()} for key, text in zip(SOURCE_HEADERS, told, strict=True)]


def _at_zero(batch: Encoded) -> Encoded:
    """The batch with base offset 0; its records are counted from there."""
    return batch._replace(data=bytes(8) + batch.data[8:], base_offset=0)


def _stretched(batch: Encoded, next_offset: int) -> Encoded:
    """The batch, extended to cover the gap after it."""
    data = bytearray(batch.data)
    data[_LAST_DELTA_AT : _LAST_DELTA_AT + 4] = (next_offset - 1 - batch.base_offset).to_bytes(4, "big")
    seal(data)
    return batch._replace(data=bytes(data), next_offset=next_offset)


def _with_reasons(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Malformed records as they were, with one more header: the reason."""
    reasons = rows.column("reason").to_pylist()
    return with_headers(rows, [[{"key": REASON_HEADER, "value": reason.encode()}] for reason in reasons])


def with_headers(rows: pa.RecordBatch, more: list[list[dict[str, Any]]]) -> pa.RecordBatch:
    """Rows with additional headers after their own."""
    headers = [[*(had or []), *add] for had, add in zip(rows.column("headers").to_pylist(), more, strict=True)]
    at = rows.schema.get_field_index("headers")
    return rows.set_column(at, "headers", pa.array(headers, rows.schema.field("headers").type))


def _take_cluster(server: str) -> Cluster:
    """This worker's connections. They are returned after a successful task; otherwise they may hold its answers."""
    return _clusters.pop(server, None) or Cluster(server, patience=0)  # Spark retries a task
