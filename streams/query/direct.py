"""A task for queries that need no JVM, from splits to the broker, in whatever process it runs.

The code is the same in a Spark task, in a worker process and in the driver itself; only the accounting of the rows'
memory differs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import msgspec
import pyarrow as pa

from barnabas.streams.query.definitions import Definition
from barnabas.streams.query.facts import Facts
from barnabas.streams.query.parts import UNREADABLE, arrow_rows
from barnabas.streams.query.scan import Gauge, Scan
from barnabas.streams.query.sink import Output, Report, Sink, Writer, rows_of
from barnabas.streams.query.tick import Tick, current


class Results(Protocol):
    """A query that computes the results of rows."""

    def results(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The records that result from rows: offset, timestamp, key, value, headers."""
        ...


class Direct(msgspec.Struct, frozen=True):
    """Scan, queries and sink of a task, in the order of the sink's outputs.

    All results of a row together may have `grows` times its bytes, plus `adds` bytes.
    """

    scan: Scan
    queries: Sequence[Results]
    sink: Sink
    grows: float = 1
    adds: float = 0

    def __call__(self, numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Run all tasks whose numbers come in, inside a Spark task. Yields one row for each query: what was done."""
        tick, _, again = current()
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                if tick.parts[number].lo < tick.parts[number].hi:
                    yield rows_of(self.run(tick, number, again=again))

    def run(self, tick: Tick, number: int, *, again: bool = False, gauge: Gauge | None = None) -> list[Report]:
        """Read and write all of one task, which has something to read. Returns what was done, for each query.

        `again`: an earlier attempt has failed. Raises what reader, writer and `gauge` raise.
        """
        writer = Writer(self.sink, tick, number, again)
        for rows in self.scan.records(tick, number, gauge):
            self._take(rows, writer)
        writer.finish()
        return writer.reports()

    def _take(self, rows: pa.RecordBatch, writer: Writer) -> None:
        readable, unreadable = rows, rows.column(UNREADABLE)
        if unreadable.null_count < len(rows):
            bad = rows.filter(unreadable.is_valid())
            readable = rows.filter(unreadable.is_null())
            were = bad.column(UNREADABLE)
            names = [field.name for field in were.type]
            writer.malformed(
                pa.RecordBatch.from_arrays([bad.column("_offset"), *were.flatten()], names=["offset", *names])
            )
        for number, (query, output) in enumerate(zip(self.queries, self.sink.outputs, strict=True)):
            found = query.results(readable if output.parses else rows)
            if found.num_rows:
                writer.results(number, found)


def direct_of(
    server: str, definitions: Sequence[Definition], found: Sequence[Facts], queries: Sequence[Results]
) -> Direct:
    """The task for definitions with the same source, with the facts in `found` and one of `queries` for each."""
    names = frozenset().union(*(one.names for one in found))
    first = found[0]
    values = first.values if any(one.parses for one in found) else pa.schema([])
    scan = Scan(
        arrow_rows(first.values, names),
        values,
        definitions[0].plan.values,
        names=max(one.names_bytes for one in found),
    )
    grows, adds = (sum(each) for each in zip(*map(_growth, found), strict=True))
    return Direct(scan, queries, Sink(server, outputs_of(definitions, found)), grows, adds)


def _growth(facts: Facts) -> tuple[float, float]:
    """A result's limit: how many times its row, and how many bytes more."""
    return (1, 0) if facts.simple is not None else (1 + facts.bound.grows, facts.bound.adds)


def outputs_of(definitions: Sequence[Definition], found: Sequence[Facts]) -> list[Output]:
    """Where to write the results of definitions."""
    return [
        Output(d.topic, one.parses, d.on_error, d.max_batch_bytes, d.partitions if d.plan.pattern else 0)
        for d, one in zip(definitions, found, strict=True)
    ]
