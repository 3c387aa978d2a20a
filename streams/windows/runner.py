"""A running Spark query: the streams that share it, the transactions of their results, and its state."""

from __future__ import annotations

import contextlib
import datetime
import json
import math
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from barnabas.client.cluster import Cluster
from barnabas.client.groups import Committed, committed
from barnabas.client.offsets import EARLIEST, list_offsets
from barnabas.client.transactional import TransactionalProducer
from barnabas.streams.query import health
from barnabas.streams.query.definitions import StreamDefinition
from barnabas.streams.query.errors import QueryError
from barnabas.streams.query.health import Health
from barnabas.streams.windows import batches
from barnabas.streams.windows.checkpoint import Folder, is_begun
from barnabas.streams.windows.copies import Copies
from barnabas.streams.windows.due import rule_of
from barnabas.streams.windows.expired import Expired
from barnabas.streams.windows.frames import source_frame
from barnabas.streams.windows.groups import Group
from barnabas.streams.windows.limits import MAX_BATCH_BYTES, MAX_ROWS_BATCH_BYTES, Limits
from barnabas.streams.windows.one_batch import use_foreseen
from barnabas.streams.windows.others import TABLE_OUTGROWN
from barnabas.streams.windows.plan import Member, MemberError, parsed, period_of, planned, reading
from barnabas.streams.windows.quiet import Quiet
from barnabas.streams.windows.results import batch_results
from barnabas.streams.windows.row_plan import OUTGROWN
from barnabas.streams.windows.session import set_query
from barnabas.streams.windows.sink import Target, TransactionSink
from barnabas.streams.windows.source import ends_of, read_mark, write_mark
from barnabas.streams.windows.watched import AHEAD, MALFORMED, NO_TIME, OBSERVED, RECORDS
from barnabas.wire.aliases import TopicPartition
from barnabas.wire.queries.messages import StreamBatch, StreamStatus
from barnabas.wire.queries.writer import WRITER_ID
from barnabas.wire.streams.clauses import AT_ONCE, MAX_STATE_ROWS
from barnabas.wire.streams.keys import GROUP, RUNNING
from barnabas.wire.streams.plan import StreamPlan
from barnabas.wire.streams.windows import RowWindow

# The broker aborts a transaction after this long without a sign of life. A batch writes for some seconds at most.
_TRANSACTION_MS = 120_000
# A query is behind if it has not read what was there this long ago, and its lag has not decreased: a batch may wait.
_BEHIND_SECONDS = 30.0
# Several streams' state is counted again when it has grown by a tenth, because counting reads all of it.
_COUNT_AGAIN = 1.1
_SHOWN_ID = 8


class Home(NamedTuple):
    """The environment of streams: the broker, its data directory, and what the driver may write there."""

    server: str
    data_dir: str
    #: The driver's transactional id, with which its queries' ids begin.
    writer_id: Callable[[], str]
    #: Appends to the log shared by broker and driver, over these connections.
    note: Callable[[StreamBatch, Cluster], None]
    #: Tells the operator: level, event, fields.
    say: Callable[..., None]
    #: Copies of the checkpoints, if wanted.
    copies: Copies | None = None
    limits: Limits = Limits()


class Runner:
    """Runs one query. It starts and stops in one thread, which may take seconds; another calls `look` and `told`."""

    def __init__(
        self, session: SparkSession, home: Home, group: Group, definitions: Mapping[str, StreamDefinition]
    ) -> None:
        self._session, self._home = session, home
        self.group = group
        #: By topic.
        self.definitions = dict(definitions)
        self.folder = Folder(home.data_dir, group.id)
        self.health = Health()
        self.is_behind = False
        self._query: StreamingQuery | None = None
        self._producer: TransactionalProducer | None = None
        self._sink: TransactionSink | None = None
        self._batch = -1
        self._told_rows: dict[str, int] = {}
        self._watermark: int | None = None
        self._late = self._ignored = 0
        self.state_rows = self._counted_rows = 0
        self._behind_at, self._behind_by = 0.0, 0
        self._were: dict[TopicPartition, int] = {}  # the source's ends at that time
        self._quiet: Quiet | None = None
        self._by_clock = self._foresees = False
        #: The limit of each stream's rows of state, by topic.
        self.most_rows: dict[str, int] = {}
        #: The state of each stream, and the query's position in its source: before the start, only the checkpoint knows
        #: it.
        self.streams = {topic: Health() for topic in definitions}
        self.ends: dict[TopicPartition, int] | None = None
        #: When there was last something to do, by `health.now`.
        self.used_at = -math.inf
        self._is_settled: bool | None = None  # for a query that is not running; None if that was not checked
        self._is_quiet = False  # for one that has run before: whether no mark was to come

    @property
    def source(self) -> StreamPlan:
        """What all its streams read."""
        return next(iter(self.definitions.values())).plan

    @property
    def batches(self) -> int:
        """How many batches are completed. Raises OSError."""
        return batches.last_batch(self.folder.checkpoint, batches.COMMITS) + 1

    @property
    def runs(self) -> bool:
        """Whether it should run. Its streams run or are paused together."""
        return all(definition.state == RUNNING for definition in self.definitions.values())

    def change(self, group: Group, definitions: Mapping[str, StreamDefinition]) -> None:
        """Give it other streams. It does not run meanwhile."""
        self.group, self.definitions = group, dict(definitions)
        self.streams = {topic: self.streams.get(topic) or Health() for topic in definitions}
        self.health.changed()
        self.used_at, self._is_settled = health.now(), None

    # --- starting and stopping ----------------------------------------------------------------------------------------

    def open(self) -> int:
        """Take over the transactional id, and find the number of committed batches. Raises QueryError, ClientError."""
        if self._producer is None:
            self.folder.make()
            self.folder.mend()
            name = self.group.id
            self._producer = TransactionalProducer(
                Cluster(self._home.server),
                f"{self._home.writer_id()}/{name}",
                f"{WRITER_ID}/{name}",
                timeout_ms=_TRANSACTION_MS,
            )
            self._producer.begin()
        keys = [(member.topic, 0) for member in self.group.members]
        found = committed(self._producer.cluster, GROUP, keys, stable=True)
        positions = {topic: at for (topic, _), at in found.items()}
        if self._home.copies is not None and not self.folder.checkpoint_id():
            self._restore(self._home.copies, positions)
        first = self.folder.first_batch(self.group.members, positions, self.group.was)
        if self.folder.last_batch() < first - 1:
            self._make_again(self._producer.cluster, first)
        return first

    def _restore(self, copies: Copies, positions: Mapping[str, Committed]) -> None:
        """Restore the newest copy of a checkpoint that is gone."""
        if any(is_begun(member, positions.get(member.topic)) for member in self.group.members):
            batch = copies.restore(self.group.id, self.folder)
            if batch is not None:
                self._home.say("info", "stream.restored", query=self.group.id, batch=batch)

    def _make_again(self, cluster: Cluster, first: int) -> None:
        """Have the batches repeated that the checkpoint lacks. Raises QueryError."""
        begins = self.folder.planned_offsets()
        earliest = list_offsets(cluster, list(begins), EARLIEST)
        gone = [f"{topic}-{number}" for (topic, number), at in begins.items() if earliest[topic, number] > at]
        if gone:
            raise QueryError(
                f"the checkpoint in {self.folder.path} is older than the results, and records that are needed to go on "
                f"are gone ({', '.join(gone)}): RECALCULATE STREAM calculates it anew from what is there"
            )
        count = self.folder.make_again(first, batches.noted(cluster, (self.group.origin, self.group.id)))
        self._home.say("info", "stream.batches_again", query=self.group.id, batches=count)

    def start(self, now: float, trigger_ms: int) -> None:
        """Continue from the streams' positions. `trigger_ms` is the least time between two batches that read.

        Raises QueryError, ClientError, and Spark's errors.
        """
        first = self.open()
        assert self._producer is not None
        self._is_settled, self._is_quiet = None, False
        self.ends = self.folder.planned_offsets()
        targets = {
            member: Target(member.topic, of.partitions, of.max_batch_bytes)
            for member, of in ((member, self.definitions[member.topic]) for member in self.group.members)
        }
        server, limits = self._home.server, self._home.limits
        members = self._members()
        clauses, kinds = members[0].clauses, [member.clauses.window for member in members]
        plan = msgspec.structs.replace(self.source, starts=self.group.starts)
        rate = limits.source_bytes_per_second
        of_rows, rule = isinstance(clauses.window, RowWindow), rule_of(clauses, kinds, trigger_ms)
        frame = source_frame(
            self._session,
            self._home.data_dir,
            server,
            plan,
            self.folder,
            batch_bytes=MAX_ROWS_BATCH_BYTES if of_rows else MAX_BATCH_BYTES,
            rate=rate,
            period=period_of(clauses),
            join=clauses.join,
            reading=reading(self._session, members, self.group.slots, plan.values),
            rule=rule,
        )
        running = planned(self._session, members, self.group.slots, frame, plan.values)
        expired = None
        if clauses.expired_ms:
            expired = Expired(self._home.data_dir, server, plan, self.folder, members, self.group.slots)
        results_of = batch_results(running.results_of, expired, clauses.parallelism)
        sink = TransactionSink(
            self._producer, server, targets, self.folder, self._note_batch, results_of, limits, self._foresee
        )
        sink.next_batch = first
        self._quiet, self._by_clock = Quiet(clauses, kinds, now), clauses.by_clock
        self.most_rows = {
            each.topic: _most_rows(member) for each, member in zip(self.group.members, members, strict=True)
        }
        self._sink = sink
        self._told_rows = dict(sink.rows)
        self.release()
        Path(self.folder.foresee_file).unlink(missing_ok=True)
        self._foresees = bool(rule.ends)
        set_query(self._session, clauses.parallelism, source_plans_all=bool(rule.ends))
        self._query = (
            running.rows.writeStream.outputMode("update" if clauses.trigger == AT_ONCE else "append")
            .option("checkpointLocation", self.folder.checkpoint)
            .trigger(processingTime="0 seconds")  # its source says when there is something to do
            .foreachBatch(sink)
            .start()
        )

    def _foresee(self) -> None:
        """Make batches close windows by their own records, if the source can tell which ones do."""
        query = self._session.streams.get(self.folder.checkpoint_id()) if self._foresees else None
        if query is not None and use_foreseen(self._session, query):
            Path(self.folder.foresee_file).touch()

    def _note_batch(self, batch: int) -> None:
        """Note what a batch reads, so that it can be repeated. Raises OSError, ClientError."""
        if self._home.copies is not None and self._producer is not None:
            text = batches.text_of(self.folder.checkpoint, batch)
            self._home.note(StreamBatch(self.group.id, batch, text), self._producer.cluster)

    def _members(self) -> list[Member]:
        """Its streams. Raises MemberError."""
        found = []
        for joined in self.group.members:
            definition = self.definitions[joined.topic]
            starts = () if definition.plan.starts == self.group.starts else definition.plan.starts
            try:
                found.append(Member(joined.number, *parsed(definition.text), starts))
            except QueryError as error:
                raise MemberError(joined.number, str(error)) from None
        return found

    def is_before(self, starts: tuple[int, ...]) -> bool:
        """Whether it has planned no batch with a record from these offsets on. Raises QueryError."""
        ends = self._begins() | self.folder.planned_offsets()
        return all(end <= starts[number] if number < len(starts) else not end for (_, number), end in ends.items())

    def _begins(self) -> dict[TopicPartition, int]:
        """The offsets from which it takes its sources' records."""
        return msgspec.structs.replace(self.source, starts=self.group.starts).begins_at

    def hold(self) -> None:
        """Make it plan no batch with new records until it is released. Raises OSError."""
        self.folder.make()
        Path(self.folder.hold_file).touch()

    def release(self) -> None:
        """Let it continue."""
        Path(self.folder.hold_file).unlink(missing_ok=True)

    def stop(self) -> None:
        """End the query and any open transaction of it. Raises ClientError."""
        self._is_quiet, self._is_settled = self._has_no_mark(), None
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
        """End the query together with the driver: the next driver ends the transaction."""
        query, self._query = self._query, None
        if query is not None:
            try:
                query.stop()
            except Exception:  # the JVM may be gone
                pass

    # --- looking ------------------------------------------------------------------------------------------------------

    def look(self, now: float, source_ends: Mapping[TopicPartition, int]) -> str | None:
        """Note how it is doing. Returns the reason if the query has ended by itself.

        Raises QueryError if it must not continue.
        """
        query, sink = self._query, self._sink
        if query is None or sink is None:
            return None
        failure = query.exception()
        if failure is not None or not query.isActive:
            told = str(failure) if failure is not None else "the query has ended"
            for outgrown in (OUTGROWN, TABLE_OUTGROWN):
                if outgrown in told:
                    raise QueryError(outgrown + told.partition(outgrown)[2].partition("\n")[0])
            return told
        last = query.lastProgress
        if last is not None:
            missed = last.batchId > self._batch + 1
            for progress in query.recentProgress if missed else [last]:
                self._note(progress, now)
        for topic, rows in list(sink.rows.items()):
            more = rows - self._told_rows.get(topic, 0)
            own = self.streams.get(topic)
            if more and own is not None:
                own.ran(now, more, 0, 0.0)
                self._told_rows[topic] = rows
        self.count_lag(source_ends, now)
        self._close_quiet(now)
        return None

    def know_place(self) -> None:
        """Find out its position, if it has not run yet."""
        if self.ends is None:
            with contextlib.suppress(QueryError):  # its start will report that
                self.ends = self.folder.planned_offsets()

    def may_rest(self) -> bool:
        """Whether it would do nothing if it ran, as far as that is known.

        Before its source's end is known, it waits for that.
        """
        if self.health.lag or self.health.error is not None:
            return False
        if self._query is not None:
            return self.health.lag == 0 and self._has_no_mark() and self.folder.is_settled()
        if self._is_settled is None:
            self._is_settled = self.folder.is_settled()
        return self._is_settled and (self._is_quiet or self._has_no_mark())

    def _has_no_mark(self) -> bool:
        """Whether no mark will come without records."""
        if self.folder.last_batch() < 0:
            return True
        if self._query is not None and self._quiet is not None and not self._by_clock:
            return self._quiet.is_over(self._watermark or 0, read_mark(self.folder.close_file), self.state_rows)
        try:
            clauses, _ = parsed(next(iter(self.definitions.values())).text)
        except QueryError:  # its start will report that
            return False
        return not clauses.max_delay_ms and not clauses.by_clock

    def _note(self, progress: Any, now: float) -> None:
        watermark = progress.eventTime.get("watermark")
        if watermark is not None:
            self._watermark = _millis(watermark)
        if "addBatch" not in progress.durationMs or progress.batchId <= self._batch:
            return  # it only reports that nothing has come
        self._batch = progress.batchId
        took = progress.durationMs.get("triggerExecution", 0) - progress.durationMs.get("latestOffset", 0)
        self.health.ran(now, 0, 0, took / 1000)
        self.state_rows = sum(operator.numRowsTotal for operator in progress.stateOperators)
        for operator in progress.stateOperators:
            self._late += operator.numRowsDroppedByWatermark
        seen = progress.observedMetrics.get(OBSERVED)
        if seen is not None:
            self._ignored += seen[NO_TIME] + seen[AHEAD] + seen[MALFORMED]
        if progress.numInputRows:
            self.used_at = now
        if progress.numInputRows and self._quiet is not None:
            self._quiet.came(seen[RECORDS] if seen is not None else 0, now)
        for source in progress.sources:
            if source.endOffset:
                self.ends = ends_of(json.loads(source.endOffset))

    def is_to_count(self) -> bool:
        """Whether some stream may exceed its state limit.

        That is possible if all together exceed the limit of one, and have grown since they were last counted.
        """
        if self.state_rows <= min(self.most_rows.values(), default=MAX_STATE_ROWS):
            self._counted_rows = 0
            return False
        return self.state_rows > self._counted_rows * _COUNT_AGAIN

    def outgrown(self) -> dict[str, str]:
        """The streams that exceed their state limits, and the messages about them."""
        self._counted_rows = self.state_rows
        rows = Counter({self.group.members[0].number: self.state_rows})
        if len(self.group.members) > 1:
            state = self._session.read.format("statestore").load(self.folder.checkpoint)
            rows = Counter({row["__stream"]: row["count"] for row in state.groupBy("key.__stream").count().collect()})
        return {
            member.topic: f"its state has {rows[member.number]:,} rows, more than MAX_STATE_ROWS "
            f"({self.most_rows[member.topic]:,}): drop the stream, and make it with fewer keys, shorter windows, a "
            "shorter WATERMARK, or a larger number"
            for member in self.group.members
            if rows[member.number] > self.most_rows[member.topic]
        }

    def count_lag(self, source_ends: Mapping[TopicPartition, int], now: float) -> None:
        """Note how far the source is, and whether the query keeps up with it."""
        at = self._begins() | (self.ends or {})
        if self.ends is None or not at.keys() <= source_ends.keys():
            self.health.lag = None
            return
        topics = {topic for topic, _ in at}
        mine = {key: end for key, end in source_ends.items() if key[0] in topics}
        self.health.lag = lag = sum(max(end - at.get(key, 0), 0) for key, end in mine.items())
        if lag:
            self.used_at = now
        else:
            self.is_behind = False
        if now - self._behind_at >= _BEHIND_SECONDS:
            has_read = all(at.get(key, 0) >= end for key, end in self._were.items())
            self.is_behind = not has_read and lag >= self._behind_by > 0
            self._behind_at, self._behind_by, self._were = now, lag, mine

    def _close_quiet(self, now: float) -> None:
        """Close the windows of a topic that has had no records for MAX_DELAY."""
        if self._quiet is None or self.health.lag != 0:
            return
        mark = self._quiet.mark(now, self._watermark or 0, read_mark(self.folder.close_file), self.state_rows)
        if mark is not None:
            write_mark(self.folder.close_file, mark)

    def told(self, definition: StreamDefinition, now: float, state: str, why: str | None = None) -> StreamStatus:
        """The figures of a stream. Its results are its own; the other figures are shared by all streams of its query.

        `why` is what keeps it from running, other than an error.
        """
        topic, shared = definition.topic, self.health
        own = self.streams.get(topic) or Health()  # it may have been removed meanwhile
        told = own.told(now, topic, self.source.source)
        return StreamStatus(
            topic=topic,
            name=definition.name,
            source=", ".join(self.source.sources),
            state=state,
            query=self.group.id[:_SHOWN_ID],
            lag=shared.lag,
            rows=told.rows,
            rows_per_second=told.rows_per_second,
            batch_ms=round(shared.batch_ms, 1),
            watermark=self._watermark or None,
            state_rows=self.state_rows,
            late=self._late,
            ignored=self._ignored,
            last_error=shared.error or why,
        )


def _most_rows(member: Member) -> int:
    """The limit of a stream's rows of state. Windows that records open and close count their own (row_plan.py)."""
    return sys.maxsize if isinstance(member.clauses.window, RowWindow) else member.clauses.max_state_rows


def _millis(text: str) -> int:
    """A time from Spark's progress, in ms since 1970."""
    at = datetime.datetime.fromisoformat(text)
    return int(at.timestamp() * 1000)
