"""Functions that the tests of windows share; needs pyspark."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from barnabas.streams.windows.batches import text_of
from barnabas.streams.windows.checkpoint import Folder
from barnabas.streams.windows.due import Rule, rule_of
from barnabas.streams.windows.expired import Expired
from barnabas.streams.windows.frames import source_frame
from barnabas.streams.windows.limits import MAX_BATCH_BYTES
from barnabas.streams.windows.one_batch import use_foreseen
from barnabas.streams.windows.plan import Member, check, parsed, period_of, planned, reading, source_schema
from barnabas.streams.windows.reading import Reading
from barnabas.streams.windows.results import batch_results
from barnabas.streams.windows.session import set_query
from barnabas.streams.windows.slots import Slot, slots_for
from barnabas.streams.windows.source import FORMAT, write_mark
from barnabas.streams.windows.watched import CLOSE
from barnabas.wire.queries.plan import Values
from barnabas.wire.streams.clauses import AT_ONCE
from barnabas.wire.streams.plan import JoinedReads, StreamPlan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

NOWHERE = "127.0.0.1:1"  # no broker is using the directory


class Run:
    """Streams that share a query over a directory, without a broker. Their results are kept batch by batch."""

    def __init__(
        self,
        session: SparkSession,
        path: Path,
        folder: Path,
        text: str | list[str],
        values: Values,
        joined: JoinedReads | None = None,
    ) -> None:
        self.session, self.path, self.values, self.joined = session, path, values, joined
        self.folder = Folder(str(folder), "query")
        self.members = members_of([text] if isinstance(text, str) else text)
        self.slots = slots_of(session, self.members, values, joined)
        self.batches: dict[int, list[tuple[str | None, dict[str, Any], Any]]] = {}
        #: The rows of its batches, if they are to be kept.
        self.keeps_rows = False
        #: Whether it plans and closes like a query of the driver, and runs on until it is stopped.
        self.is_steady = False
        self.rows: list[Row] = []
        self.streams: dict[int, list[dict[str, Any]]] = {}
        self.query: StreamingQuery | None = None
        self.folder.make()

    def start(self, *, starts: tuple[int, ...] = (), batch_bytes: int = MAX_BATCH_BYTES) -> StreamingQuery:
        """Run until all available data is processed, or until it is stopped if it is steady."""
        rule = rule_of(self.members[0].clauses, [member.clauses.window for member in self.members])
        rule = rule if self.is_steady else Rule()
        self._is_first = True
        Path(self.folder.foresee_file).unlink(missing_ok=True)
        clauses = self.members[0].clauses
        values = {"format": self.values.format, "schema": self.values.schema}
        plan = StreamPlan(source=clauses.source, starts=starts, joined=self.joined, **values)
        frame = source_frame(
            self.session,
            str(self.path),
            NOWHERE,
            plan,
            self.folder,
            batch_bytes=batch_bytes,
            period=period_of(clauses),
            join=clauses.join,
            reading=self.reading(),
            rule=rule,
        )
        running = planned(self.session, self.members, self.slots, frame, self.values)
        expired = None
        if clauses.expired_ms:
            expired = Expired(str(self.path), NOWHERE, plan, self.folder, self.members, self.slots)
        self._results_of = batch_results(running.results_of, expired, clauses.parallelism)
        set_query(self.session, clauses.parallelism, source_plans_all=bool(rule.ends))
        self.query = (
            running.rows.writeStream.outputMode("update" if clauses.trigger == AT_ONCE else "append")
            .option("checkpointLocation", self.folder.checkpoint)
            .trigger(**{"processingTime": "0 seconds"} if self.is_steady else {"availableNow": True})
            .foreachBatch(self._take)
            .start()
        )
        return self.query

    def reading(self) -> Reading | None:
        """The columns that its query reads; None means all columns, record by record."""
        return reading(self.session, self.members, self.slots, self.values)

    def _take(self, frame: DataFrame, batch: int) -> None:
        if self.is_steady and self._is_first:
            query = self.session.streams.get(self.folder.checkpoint_id())
            assert query is not None
            assert use_foreseen(self.session, query)
            Path(self.folder.foresee_file).touch()
        self._is_first = False
        if self.keeps_rows:
            kept = frame.collect()
            self.rows += kept
            frame = self.session.createDataFrame(kept, frame.schema)
        results = self._results_of(frame, batch)
        assert results.rdd.getNumPartitions() <= 1, "one task writes"
        rows = results.collect()
        assert all(one.timestamp <= other.timestamp for one, other in pairwise(rows)), "in the order of windows"
        self.batches[batch] = [
            (None if row.key is None else bytes(row.key).decode(), json.loads(bytes(row.value)), row.timestamp)
            for row in rows
        ]
        for row in rows:
            self.streams.setdefault(row.stream, []).append(json.loads(bytes(row.value)))

    def mark(self, ms: int) -> None:
        """Set a mark that closes the windows up to a time."""
        write_mark(self.folder.close_file, ms)

    def results(self) -> list[dict[str, Any]]:
        """All values, sorted."""
        assert self.query is not None
        self.query.awaitTermination(120)
        failure = self.query.exception()
        assert failure is None, failure
        stores = [
            path.name for path in Path(self.folder.checkpoint, "state", "0").iterdir() if path.name != "_metadata"
        ]
        assert len(stores) == self.members[0].clauses.parallelism
        return in_order(value for rows in self.batches.values() for _, value, _ in rows)


class Noting(Run):
    """Notes what its batches read, and does something with each."""

    def __init__(self, *args: Any, each: Callable[[int], None]) -> None:
        super().__init__(*args)
        self.noted: dict[int, str] = {}
        self._each = each

    def _take(self, frame: Any, batch: int) -> None:
        super()._take(frame, batch)
        self.noted[batch] = text_of(self.folder.checkpoint, batch)
        self._each(batch)


def in_order(values: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Sorted by their text."""
    return sorted(values, key=lambda value: json.dumps(value, sort_keys=True))


def rows_in_batch(session: SparkSession, path: Path, text: str, values: Values) -> list[Row]:
    """Spark's results for the same SELECT over the whole log at once, as they would be written."""
    members = members_of([text])
    clauses = members[0].clauses
    schema = source_schema(values)
    options = {"path": str(path), "topic": clauses.source, "format": values.format, "bootstrap.servers": NOWHERE}
    read = session.read.format(FORMAT).options(**options)
    inner = StructType([field for field in schema.fields if field.name != CLOSE])
    frame = read.schema(inner).load().withColumn(CLOSE, F.lit(None).cast("timestamp"))
    made = planned(session, members, slots_of(session, members, values), frame, values)
    return made.results_of(made.rows).collect()


def in_batch(session: SparkSession, path: Path, text: str, values: Values) -> list[dict[str, Any]]:
    """The values of Spark's results for the same SELECT."""
    return in_order(json.loads(bytes(row.value)) for row in rows_in_batch(session, path, text, values))


def of_rows(session: SparkSession, rows: list[Row], schema: str, text: str, values: Values) -> list[dict[str, Any]]:
    """The results of a stream over the rows in another stream's batches."""
    members = members_of([text])
    frame = session.createDataFrame([], source_schema(values))
    made = planned(session, members, slots_of(session, members, values), frame, values)
    found = made.results_of(session.createDataFrame(rows, schema)).collect()
    return in_order(json.loads(bytes(row.value)) for row in found)


def members_of(texts: Iterable[str]) -> list[Member]:
    """Streams with these texts."""
    return [Member(number, *parsed(text)) for number, text in enumerate(texts)]


def slots_of(
    session: SparkSession, members: Iterable[Member], values: Values, joined: JoinedReads | None = None
) -> list[Slot]:
    """The slots of a query that all of these can share."""
    needs: Counter[Slot] = Counter()
    for member in members:
        needs |= check(session, member.clauses, member.stages, values, joined).slots
    return slots_for(needs)
