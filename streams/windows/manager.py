"""All streams of one driver: those that are to run are started one after the other, looked at, and started again.

A start takes seconds, so it happens in a thread of its own; the driver's loop only looks. Each stream waits longer from
failure to failure, as query topics do.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable

from pyspark.sql import SparkSession

from barnabas.client.cluster import Cluster
from barnabas.client.errors import ClientError
from barnabas.client.offsets import LATEST, list_offsets
from barnabas.streams.query.definitions import Catalog, Source, StreamDefinition
from barnabas.streams.query.errors import QueryError, reason_of
from barnabas.streams.query.health import FAILED, now
from barnabas.streams.windows.checkpoint import remove_others
from barnabas.streams.windows.plan import Planned, check, parsed
from barnabas.streams.windows.runner import Runner
from barnabas.streams.windows.session import streams_session
from barnabas.wire.aliases import TopicPartition
from barnabas.wire.queries.messages import StreamStatus
from barnabas.wire.streams import keys
from barnabas.wire.streams.clauses import Clauses

Say = Callable[..., None]
STARTING = "STARTING"
_ASK_SECONDS = 1.0


class Streams:
    """The streams of one broker."""

    def __init__(
        self,
        spark: SparkSession,
        server: str,
        data_dir: str,
        writer_id: Callable[[], str],
        *,
        trigger_ms: int,
        say: Say,
        init: Callable[[SparkSession], None] | None = None,
    ) -> None:
        self._spark, self._server, self._data_dir, self._writer_id = spark, server, data_dir, writer_id
        self._trigger_ms, self._say, self._init = trigger_ms, say, init
        self._made: SparkSession | None = None
        self._runners: dict[str, Runner] = {}
        self._up: set[Runner] = set()
        self._busy: set[Runner] = set()  # they are being started or stopped
        self._sources: dict[str, Source] = {}
        self._ends: dict[TopicPartition, int] = {}
        self._asked_at = 0.0
        self._todo: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    @property
    def session(self) -> SparkSession:
        """The session of all streams, made when it is first needed."""
        if self._made is None:
            self._made = streams_session(self._spark)
            if self._init is not None:
                self._init(self._made)
        return self._made

    def check(self, text: str, source_of: Callable[[str], Source]) -> tuple[Clauses, Source, Planned]:
        """What a stream would read and give. Raises QueryError, and what Spark raises."""
        clauses, stages = parsed(text)
        source = source_of(clauses.source)
        return clauses, source, check(self.session, clauses, stages, source.values)

    # --- which there are ----------------------------------------------------------------------------------------------

    def know(self, catalog: Catalog) -> None:
        """Know the streams anew: what has gone or changed is stopped."""
        self._sources = catalog.sources
        for topic, runner in list(self._runners.items()):
            wanted = catalog.streams.get(topic)
            if wanted is None or _identity(wanted) != _identity(runner.definition):
                del self._runners[topic]
                self._say("info", "stream.gone", topic=topic)
                self._stop(runner)
        for topic, definition in catalog.streams.items():
            if topic in self._runners:
                runner = self._runners[topic]
                if runner.definition.state != definition.state:
                    runner.health.changed()
                runner.definition = definition
                continue
            self._say("info", "stream.found", topic=topic, source=definition.plan.source)
            self._runners[topic] = Runner(
                self.session, self._server, self._data_dir, self._writer_id, definition, self._trigger_ms
            )
        if catalog.is_whole:
            kept = [runner.folder for runner in self._runners.values()]
            self._do(lambda: self._remove_others([folder.path for folder in kept]))

    def _remove_others(self, paths: list[str]) -> None:
        for name in remove_others(self._data_dir, paths):
            self._say("info", "stream.state_removed", folder=name)

    # --- the loop -----------------------------------------------------------------------------------------------------

    def look(self, cluster: Cluster) -> None:
        """Start what is to run, stop what is not, see how the others do. Raises ClientError if the broker is gone."""
        at = now()
        if not self._runners:
            return
        if at - self._asked_at >= _ASK_SECONDS:
            self._asked_at = at
            self._ask_ends(cluster)
        for runner in list(self._runners.values()):
            if runner in self._busy:
                continue
            if self._is_gone(runner):
                continue
            runs = runner in self._up
            if runner.definition.state != keys.RUNNING:
                if runs:
                    self._stop(runner)
                runner.count_lag(self._ends)
            elif not runs:
                if runner.health.may_run(at):
                    self._start(runner)
            else:
                failure = self._failure(runner, at)
                if isinstance(failure, QueryError):
                    self._fail(runner, str(failure))
                elif failure is not None:
                    self._failed(runner, reason_of(failure))

    def _failure(self, runner: Runner, at: float) -> str | Exception | None:
        """Why a stream does not go on, if it does not."""
        try:
            return runner.look(at, self._ends)
        except Exception as error:  # no stream ends the driver
            return error

    def _ask_ends(self, cluster: Cluster) -> None:
        """How far the sources are."""
        wanted = {runner.definition.plan.source for runner in self._runners.values()}
        parts = [(name, p) for name in wanted if name in self._sources for p in range(self._sources[name].partitions)]
        try:
            self._ends = list_offsets(cluster, parts, LATEST)
        except ClientError:
            cluster.metadata([])  # raises if it is the broker that has gone, and no topic

    def _is_gone(self, runner: Runner) -> bool:
        """Whether the source is another topic now, or none; then the stream has failed."""
        plan = runner.definition.plan
        source = self._sources.get(plan.source)
        if source is not None and source.topic_id == plan.source_id:
            return False
        what = "was deleted" if source is None else "was deleted and made again"
        if runner.health.state != FAILED:
            self._fail(runner, f"the source {plan.source} {what}: drop this stream, and make it again")
        return True

    def _start(self, runner: Runner) -> None:
        self._busy.add(runner)

        def start() -> None:
            try:
                runner.start(now())
                self._up.add(runner)
            except QueryError as error:
                self._fail(runner, str(error))
            except Exception as error:
                self._failed(runner, reason_of(error))
            finally:
                self._busy.discard(runner)

        self._do(start)

    def _stop(self, runner: Runner) -> None:
        self._busy.add(runner)

        def stop() -> None:
            try:
                runner.stop()
            except Exception as error:
                self._say("warning", "stream.not_stopped", topic=runner.definition.topic, error=reason_of(error))
            finally:
                self._up.discard(runner)
                self._busy.discard(runner)

        self._do(stop)

    def _failed(self, runner: Runner, error: str) -> None:
        """It is tried again, later each time."""
        runner.health.failed(now(), error)
        self._say("warning", "stream.retrying", topic=runner.definition.topic, error=error)
        self._stop(runner)

    def _fail(self, runner: Runner, error: str) -> None:
        """It cannot go on until somebody changes something."""
        runner.health.stopped(error)
        self._say("error", "stream.failed", topic=runner.definition.topic, error=error)
        self._stop(runner)

    def _do(self, task: Callable[[], None]) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="streams", daemon=True)
            self._thread.start()
        self._todo.put(task)

    def _run(self) -> None:
        while True:
            self._todo.get()()

    def stop(self) -> None:
        """End all queries, as the driver ends or makes a new one of itself."""
        for runner in self._runners.values():
            runner.abandon()
        self._runners.clear()

    # --- telling ------------------------------------------------------------------------------------------------------

    def told(self) -> list[StreamStatus]:
        """How all streams are."""
        return [runner.told(now(), self._state(runner)) for runner in self._runners.values()]

    def _state(self, runner: Runner) -> str:
        if runner.definition.state != keys.RUNNING:
            return runner.definition.state.upper()
        up_or_down = runner in self._up or runner.health.error is not None
        return runner.health.state if up_or_down else STARTING


def _identity(definition: StreamDefinition) -> tuple[object, ...]:
    """What makes a stream another one: its topic, its text, and the run."""
    return definition.topic_id, definition.run, definition.text, definition.plan, definition.partitions
