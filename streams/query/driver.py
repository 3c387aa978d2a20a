"""The driver's loop: read what has changed, ask for the sources' end offsets, run the queries that have work."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from barnabas.client.cluster import Cluster
from barnabas.client.errors import ClientError
from barnabas.client.offsets import EARLIEST, LATEST, list_offsets
from barnabas.streams.query.analyses import Analyses, Analysis
from barnabas.streams.query.analysis import ALL_TOPICS, over_pattern
from barnabas.streams.query.control import NO_ENDS, Control, now_ms
from barnabas.streams.query.crew import Crew
from barnabas.streams.query.definitions import Catalog, Definition, read_catalog
from barnabas.streams.query.errors import (
    DenseRowsError,
    FatalError,
    MalformedRecordError,
    NoSparkError,
    QueryError,
    RowTooLargeError,
    StartingError,
    TakenOverError,
    TooSlowError,
    reason_of,
)
from barnabas.streams.query.events import TopicState, event_of
from barnabas.streams.query.facts import Facts
from barnabas.streams.query.health import DENIED, FAILED, Health, now
from barnabas.streams.query.inline import Inline
from barnabas.streams.query.lazy_spark import LazySpark
from barnabas.streams.query.merged import commit, recover
from barnabas.streams.query.pace import MAX_BYTES, Pace
from barnabas.streams.query.questions import Questions
from barnabas.streams.query.roads import Roads
from barnabas.streams.query.tick import Part, Piece, Tick, piece_of
from barnabas.streams.query.work import Worked
from barnabas.streams.wal import Planner, TooMuchError, WalError
from barnabas.streams.wal.local_broker import log_dir_of
from barnabas.streams.windows.copies import Copies
from barnabas.streams.windows.limits import Limits
from barnabas.streams.windows.manager import COPY_SECONDS, Streams
from barnabas.streams.windows.runner import Home
from barnabas.wire.aliases import TopicPartition
from barnabas.wire.patterns import PatternError, pattern
from barnabas.wire.queries.messages import Changed, Check, CheckStream, QueryStatus, Status, StreamStatus

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Say = Callable[..., None]
_STATUS_SECONDS, _QUIET_STATUS_SECONDS = 1.0, 10.0
_COMMIT_SECONDS = 1.0


class Driver:
    """All queries of one broker. `say(level, event, **fields)` is for the operator."""

    def __init__(
        self,
        spark: LazySpark,
        server: str,
        data_dir: str | None,
        *,
        trigger_ms: int,
        timeout_ms: int,
        most_streams: int,
        copies: str = "",
        copy_seconds: float = COPY_SECONDS,
        limits: Limits = Limits(),  # noqa: B008  (a tuple)
        say: Say,
        init: Callable[[SparkSession], None] | None = None,
        processes: int = 0,
    ) -> None:
        """`processes` are workers for large ticks of queries that need no JVM.

        Without any, Spark's tasks do this, which may be on other machines.
        """
        self._spark, self._server, self._trigger, self._say = spark, server, trigger_ms / 1000, say
        # No patience: a broker that was away no longer knows this driver, and whoever created it creates a new one.
        self._cluster = Cluster(server, patience=0)
        self._log_dir = log_dir_of(self._cluster, server, data_dir)
        self._planner = Planner(self._log_dir, split_bytes=MAX_BYTES, fail_on_data_loss=False)
        self._control = Control(self._cluster, self._log_dir.path)
        self._catalog = Catalog({}, {})
        self._health: dict[str, Health] = {}
        self._analyses = Analyses(spark)
        self._inline = Inline(self._log_dir.path)
        self._pace = Pace()
        crew = Crew(processes) if processes else None
        self._roads = Roads(server, self._analyses, self._inline, crew, self._pace, timeout_ms / 1000, self._say_slow)
        self._has_more = False  # work that need not wait for the next look
        self._ends: dict[TopicPartition, int] = {}  # the ends of all that queries read, as of the last look
        #: By query and source partition: the source offsets from which results, and dead letters, are still missing.
        self._places: dict[tuple[str, TopicPartition], int] = {}
        self._dead: dict[tuple[str, TopicPartition], int] = {}
        #: By query and topic: what the query's results say about the topic.
        self._events: dict[tuple[str, str], TopicState] = {}
        self._committed_at: dict[str, float] = {}
        self._told: tuple[list[QueryStatus], list[StreamStatus]] = [], []
        self._told_at = 0.0
        path = self._log_dir.path
        try:
            made = Copies(copies, self._log_dir.cluster_id) if copies else None
        except QueryError as error:
            raise FatalError(str(error)) from None
        home = Home(server, path, lambda: self._control.writer_id, self._control.note, say, made, limits)
        self._streams = Streams(
            spark, home, trigger_ms=trigger_ms, most=most_streams, copy_seconds=copy_seconds, init=init
        )
        self._questions = Questions(self._cluster, self._control, self._analyses, self._streams)
        self._read_catalog()

    def run(self) -> None:
        """Run until the broker is gone (ClientError) or another driver has taken over (TakenOverError)."""
        try:
            while True:
                began = now()
                self._tell()
                self._tick()
                self._streams.look(self._cluster)
                self._roads.look()
                self._tell()
                self._listen(now() if self._has_more else began + self._trigger)
        finally:
            self._streams.stop()
            self._roads.end()

    # --- hearing ------------------------------------------------------------------------------------------------------

    def _listen(self, until: float) -> None:
        """Answer the broker's questions until the next tick is due: at that time, or when a record comes after it."""
        while True:
            if self._hear(until, NO_ENDS):
                return
            if now() >= until:
                break
        if self._has_more or self._is_behind():
            return
        is_short = self._catalog.streams or self._spark.is_starting
        quiet = until + (self._trigger if is_short else _STATUS_SECONDS)
        while now() < quiet and not self._hear(quiet, self._ends):
            pass

    def _hear(self, until: float, ends: Mapping[TopicPartition, int]) -> bool:
        """Handle messages that are there or arrive by then.

        Returns whether the driver must look again, also because of records after `ends`.
        """
        began = now()
        is_new = False
        for message in self._control.hear(max(int((until - began) * 1000), 0), ends):
            if isinstance(message, Changed):
                self._read_catalog()
                is_new = True
            elif isinstance(message, Check | CheckStream):
                self._questions.hear(message)
        self._questions.look()
        return is_new or bool(ends)

    def _is_behind(self) -> bool:
        """Whether there are records that a query has not seen yet."""
        return any(health.lag for health in self._health.values() if health.may_run(now()))

    def _read_catalog(self) -> None:
        """Read the queries again. What still runs for the old ones may write no more."""
        old = self._catalog.definitions
        self._catalog = read_catalog(self._cluster)
        definitions = self._catalog.definitions
        if old:
            self._control.take_over()
        self._places.clear()
        self._events.clear()
        self._ends = {}
        self._told_at = 0.0
        self._streams.know(self._catalog)
        self._analyses.keep(set(map(_analysis, definitions.values())))
        self._inline.forget(name for name, definition in old.items() if definitions.get(name) != definition)
        self._health = {
            name: self._health[name] if old.get(name) == definition else Health()
            for name, definition in definitions.items()
        }
        for name in definitions.keys() - old.keys():
            self._say("info", "query.found", topic=name, source=_reads(definitions[name]))
        for name in old.keys() - definitions.keys():
            self._say("info", "query.gone", topic=name)

    # --- running ------------------------------------------------------------------------------------------------------

    def _tick(self) -> None:
        """Advance every query. Queries with the same source and position share a job."""
        self._analyses.check_jvm()
        self._has_more = False
        at = now()
        ready = [d for d in self._catalog.definitions.values() if self._may_run(d, at)]
        if not ready:
            return
        ready = [d for d in ready if self._is_understood(d) and self._knows_places(d) and self._tell_events(d)]
        reads = {definition.topic: self._catalog.inputs(definition) for definition in ready}
        keys = dict.fromkeys(key for inputs in reads.values() for key in inputs)
        try:
            first, last = (list_offsets(self._cluster, keys, special) for special in (EARLIEST, LATEST))
        except ClientError:  # a topic is gone that we had not heard about; or the broker is, and that is raised
            self._read_catalog()
            return
        self._ends = last
        if self._hears_of_change(reads, last):
            return
        groups: dict[tuple[Any, ...], list[Definition]] = {}
        for definition in ready:
            same = (
                definition.plan.source,
                definition.plan.pattern,
                definition.plan.values,
                self._roads.kind(definition, self._facts(definition)),
            )
            places = tuple(self._places[definition.topic, key] for key in reads[definition.topic])
            groups.setdefault((same, places), []).append(definition)
        for group in groups.values():
            self._run_group(group, first, last)

    def _hears_of_change(
        self, reads: Mapping[str, Sequence[TopicPartition]], last: Mapping[TopicPartition, int]
    ) -> bool:
        """Whether the definitions have changed since the last look, if there are records up to `last`.

        A client may have changed a query and then produced some of these records: the new query is for them. The broker
        answers the change when it can be heard here, so it is enough to listen after `last` was looked up.
        """
        if all(self._places[topic, key] >= last[key] for topic, inputs in reads.items() for key in inputs):
            return False
        if not self._control.has_unheard() or not self._hear(now(), NO_ENDS):
            return False
        self._has_more = True
        return True

    def _is_understood(self, definition: Definition) -> bool:
        """Whether the query's facts are known."""
        try:
            self._facts(definition)
        except StartingError:
            return False
        except NoSparkError as error:
            self._retry(definition, str(error))
            return False
        except QueryError as error:
            self._stop(definition, str(error))
            return False
        return True

    def _facts(self, definition: Definition) -> Facts:
        """The facts about its query. Raises like `Analyses.facts`."""
        return self._analyses.facts(*_analysis(definition))

    def _may_run(self, definition: Definition, at: float) -> bool:
        health = self._health[definition.topic]
        if not health.may_run(at):
            return False
        if definition.denied:
            self._stop(definition, definition.denied, DENIED)
            return False
        if definition.plan.pattern:
            try:
                pattern(definition.plan.pattern)
            except PatternError as error:  # an older version created it
                self._stop(definition, f"{error}: drop this topic, and make it with another pattern")
                return False
            return True
        source = self._catalog.sources.get(definition.plan.source)
        if source is None or source.topic_id != definition.plan.source_id:
            what = "was deleted" if source is None else "was deleted and made again"
            self._stop(definition, f"the source {definition.plan.source} {what}: drop this topic, and make it again")
            return False
        return True

    def _stop(self, definition: Definition, error: str, state: str = FAILED) -> None:
        if self._health[definition.topic].state != state:
            level, event = ("error", "query.failed") if state == FAILED else ("warning", "query.denied")
            self._say(level, event, topic=definition.topic, error=error)
        self._health[definition.topic].stopped(error, state)

    def _knows_places(self, definition: Definition) -> bool:
        """Find a query's position if it is unknown. Returns whether it is now known."""
        inputs = self._catalog.inputs(definition)
        if all((definition.topic, key) in self._places for key in inputs):
            return True
        try:
            if definition.plan.pattern:
                progress = recover(self._cluster, self._log_dir, definition, inputs, self._catalog.sources)
                found = progress.places
                self._dead |= {(definition.topic, key): offset for key, offset in progress.dead.items()}
                self._events |= {(definition.topic, name): state for name, state in progress.states.items()}
            else:  # a batch must begin where the results end
                told = list_offsets(self._cluster, [(definition.topic, p) for _, p in inputs], LATEST)
                found = {key: told[definition.topic, key[1]] for key in inputs}
        except (ClientError, WalError) as error:
            self._retry(definition, str(error))
            return False
        self._places |= {(definition.topic, key): offset for key, offset in found.items()}
        return True

    def _tell_events(self, definition: Definition) -> bool:
        """Write events about new or changed topics, if the query wants them. Returns whether that worked."""
        if not definition.events:
            return True
        said = False
        try:
            for name in dict.fromkeys(name for name, _ in self._catalog.inputs(definition)):
                event = event_of(self._catalog.sources[name], self._events.get((definition.topic, name)))
                if event is not None:
                    self._control.tell(definition.topic, event)
                    self._events[definition.topic, name] = event.state
                    said = True
            if said:
                self._commit([definition])
        except ClientError as error:  # it may have been written anyway: the topic will show
            for key in self._catalog.inputs(definition):
                self._places.pop((definition.topic, key), None)
            self._control.take_over()
            self._retry(definition, str(error))
            return False
        return True

    def _commit(self, group: Sequence[Definition]) -> None:
        """Commit the places of queries over patterns, because their topics do not show them."""
        for definition in group:
            mine = {key: offset for (topic, key), offset in self._places.items() if topic == definition.topic}
            if definition.plan.pattern and mine:
                self._committed_at[definition.topic] = now()
                states = {name: last for (topic, name), last in self._events.items() if topic == definition.topic}
                commit(self._cluster, definition, mine, states, self._catalog.sources)

    def _run_group(
        self, group: list[Definition], first: dict[TopicPartition, int], last: dict[TopicPartition, int]
    ) -> None:
        began = now()
        ranges = {}
        for key in self._catalog.inputs(group[0]):
            lo = self._places[group[0].topic, key]
            ranges[key] = (lo, max(lo, last[key]))
        lag = sum(hi - lo for lo, hi in ranges.values())
        for definition in group:
            self._health[definition.topic].lag = lag
        known = [(definition, self._facts(definition)) for definition in group]
        if all(lo == hi for lo, hi in ranges.values()) and not self._roads.is_to_warm(known):
            for definition in group:
                self._health[definition.topic].ran(began, 0, 0, 0.0)
            return
        try:
            done = self._roads.run(known, lambda most: self._plan_tick(group, ranges, first, most))
        except NoSparkError as error:
            for definition in group:
                self._retry(definition, str(error))
            return
        except Exception as error:
            self._failed(group, error, first, last)
            return
        if done is None:
            return
        self._has_more = self._has_more or done.is_part
        for number, definition in enumerate(group):
            mine = [report for report in done.reports if report.query == number]
            health = self._health[definition.topic]
            health.ran(now(), sum(r.written for r in mine), sum(r.dead for r in mine), done.seconds)
            if done.worked is not None:
                health.held_up(_told(done.worked))
            left = lag
            for report in mine:
                part = done.tick.parts[report.task]
                place = (definition.topic, (part.source, part.partition))
                left -= report.next - self._places[place]
                self._places[place] = report.next
            health.lag = left
        self._commit([d for d in group if now() - self._committed_at.get(d.topic, 0.0) >= _COMMIT_SECONDS])

    def _plan_tick(
        self,
        group: list[Definition],
        ranges: dict[TopicPartition, tuple[int, int]],
        first: dict[TopicPartition, int],
        most: int,
    ) -> Tick:
        """Splits for the tasks, of at most this many bytes of log."""
        there = {key: (max(lo, min(first[key], hi)), hi) for key, (lo, hi) in ranges.items()}
        cut = self._planner.within_bytes(there, most)
        splits: dict[TopicPartition, list[Piece]] = {}
        for split in self._planner.plan(cut):
            splits.setdefault((split.topic, split.partition), []).append(piece_of(split))
        parts = []
        for key, (lo, _) in ranges.items():
            ends = [self._places[definition.topic, key] for definition in group]
            dead = [self._dead.get((definition.topic, key), 0) for definition in group]
            parts.append(Part(*key, lo, cut[key][1], splits.get(key, []), ends, dead))
        return Tick(self._control.producer_id, parts, self._control.writer_id)

    def _failed(
        self,
        group: list[Definition],
        error: Exception,
        first: dict[TopicPartition, int],
        last: dict[TopicPartition, int],
    ) -> None:
        """Handle a failed job. If it had several queries, each is run alone, so that only the faulty one waits."""
        reason = reason_of(error)
        if isinstance(error, TakenOverError) or TakenOverError.__name__ in reason:
            raise TakenOverError(reason)
        for definition in group:
            for key in self._catalog.inputs(definition):
                self._places.pop((definition.topic, key), None)
        self._analyses.check_jvm()
        # The broker was restarted: it knows no driver yet, and has another secret.
        restarted = "UNKNOWN_PRODUCER_ID" in reason or "TRANSACTIONAL_ID_AUTHORIZATION_FAILED" in reason
        if restarted or group[0].plan.pattern:  # a task that is still running must not write what is about to be read
            self._control.take_over()
        if restarted or isinstance(error, TooMuchError):  # the next tick runs elsewhere
            return
        fitting = DenseRowsError.told(reason)
        if fitting is not None:  # the next tick is planned again
            self._pace.dense((definition.topic for definition in group), fitting)
            return
        self._cluster.metadata([])  # raises ClientError if the broker is gone, which is not the query's fault
        if isinstance(error, TooSlowError):
            self._pace.shrink((definition.topic for definition in group), error.size)
        if len(group) == 1:
            self._failed_alone(group[0], error, reason)
            return
        for definition in group:
            if self._knows_places(definition):
                self._run_group([definition], first, last)

    def _failed_alone(self, definition: Definition, error: Exception, reason: str) -> None:
        """Handle the failed job of a single query: the query stops, or is retried."""
        if isinstance(error, TooSlowError) and self._health[definition.topic].slow(now()):
            self._stop(definition, f"{reason}, several times: make it again with a cheaper query")
            return
        stops = [kind.__name__ for kind in (MalformedRecordError, RowTooLargeError) if kind.__name__ in reason]
        if isinstance(error, QueryError) or stops:
            self._stop(definition, reason.split(f"{stops[0]}: ")[-1] if stops else reason)
            return
        self._retry(definition, reason)

    def _say_slow(self, topics: Sequence[str], worked: Worked) -> None:
        for topic in topics:
            self._say("warning", "query.slow", topic=topic, reason=_told(worked))

    def _retry(self, definition: Definition, error: str) -> None:
        self._health[definition.topic].failed(now(), error)
        self._say("warning", "query.retrying", topic=definition.topic, error=error)

    # --- telling ------------------------------------------------------------------------------------------------------

    def _tell(self) -> None:
        """Report the state of the queries: once a second if something has changed, otherwise now and then."""
        at = now()
        if at - self._told_at < _STATUS_SECONDS or not (self._catalog.definitions or self._catalog.streams):
            return
        queries = [
            health.told(at, name, _reads(self._catalog.definitions[name])) for name, health in self._health.items()
        ]
        told = queries, self._streams.told()
        if told == self._told and at - self._told_at < _QUIET_STATUS_SECONDS:
            return
        self._told, self._told_at = told, at
        self._control.say(Status(now_ms(), *told))


def _analysis(definition: Definition) -> Analysis:
    """What to analyse for a query: its SELECT, its source, and the form of the source's values."""
    query, _ = over_pattern(definition.query)
    return query, definition.plan.source or ALL_TOPICS, definition.plan.values


def _told(worked: Worked) -> str:
    return (
        f"a batch of records has taken {worked.seconds:.1f} s, with {worked.cpu_seconds:.1f} s of CPU time: the "
        "machine is busy with other work"
    )


def _reads(definition: Definition) -> str:
    plan = definition.plan
    return plan.source or f"topics('{plan.pattern}')"
