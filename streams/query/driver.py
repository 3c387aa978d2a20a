"""The driver's loop: hear what has changed, look how far the sources are, run the queries that have something to do."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from pyspark.sql import SparkSession

from client.admin import EARLIEST, LATEST, list_offsets
from client.cluster import Cluster
from streams.query.analysis import source_of
from streams.query.control import Control
from streams.query.definitions import Catalog, Definition, Source, read_catalog, read_schema
from streams.query.errors import FatalError, MalformedRecordError, QueryError, TakenOverError
from streams.query.health import FAILED, Health, now
from streams.query.job import Job
from streams.query.tick import Part, Tick
from streams.wal import Key, LogDir, Planner

Say = Callable[..., None]
_MAX_TICK_BYTES = 256 << 20
_KEPT_JOBS = 32
_STATUS_SECONDS = 1.0


class Driver:
    """All queries of one broker. `say(level, event, **fields)` is for the operator."""

    def __init__(self, spark: SparkSession, server: str, data_dir: str, *, trigger_ms: int, say: Say) -> None:
        self._spark, self._server, self._trigger, self._say = spark, server, trigger_ms / 1000, say
        self._log_dir = LogDir(data_dir, bootstrap=server)
        self._planner = Planner(self._log_dir, split_bytes=_MAX_TICK_BYTES, fail_on_data_loss=False)
        self._cluster = Cluster(server)
        self._control = Control(self._cluster)
        self._catalog = Catalog({}, {})
        self._health: dict[str, Health] = {}
        self._jobs: dict[tuple[Any, ...], Job] = {}
        self._ends: dict[Key, int] = {}  # of the results; what is not there is asked
        self._told_at = 0.0
        self._read_catalog()

    def run(self) -> None:
        """Run until the broker is gone (ClientError) or another driver has taken over (TakenOverError)."""
        while True:
            began = now()
            self._tick()
            self._tell()
            self._listen(began + self._trigger)

    # --- hearing ------------------------------------------------------------------------------------------------------

    def _listen(self, until: float) -> None:
        """Answer what the broker asks, until it is time for the next tick."""
        while True:
            left = until - now()
            if not self._catalog.definitions:
                left = max(left, _STATUS_SECONDS)
            for message in self._control.hear(max(int(left * 1000), 0)):
                if message.get("type") == "changed":
                    self._read_catalog()
                    until = now()
                elif message.get("type") == "check":
                    self._control.say(self._checked(message))
            if now() >= until:
                return

    def _read_catalog(self) -> None:
        """Know the queries anew. What still runs of the old ones may write no more."""
        old = self._catalog.definitions
        self._catalog = read_catalog(self._cluster)
        definitions = self._catalog.definitions
        if old:
            self._control.take_over()
        self._ends.clear()
        self._told_at = 0.0
        self._health = {
            name: self._health[name] if old.get(name) == definition else Health()
            for name, definition in definitions.items()
        }
        for name in definitions.keys() - old.keys():
            self._say("info", "query.found", topic=name, source=definitions[name].plan.source)
        for name in old.keys() - definitions.keys():
            self._say("info", "query.gone", topic=name)

    def _checked(self, message: dict[str, Any]) -> dict[str, Any]:
        """Whether a query can be, and what it reads and gives."""
        answer = {"type": "checked", "id": message["id"]}
        try:
            name = source_of(self._spark, message["query"])
            if name == message["topic"]:
                raise QueryError(f"{name} cannot be made of itself")
            source, kind, schema = read_schema(self._cluster, name)
            plan = {"source": name, "source_id": source.topic_id, "format": kind, "schema": schema}
            found = Job.check(self._spark, message["query"], name, kind, schema)
            return {**answer, **plan, "output_format": found.value_format, "output_schema": found.value_schema}
        except QueryError as error:
            return {**answer, "error": str(error)}

    # --- running ------------------------------------------------------------------------------------------------------

    def _tick(self) -> None:
        """Bring every query forward, those that read the same and are at the same place in one job."""
        self._check_jvm()
        at = now()
        ready = [d for d in self._catalog.definitions.values() if self._may_run(d, at)]
        if not ready:
            return
        first, last = self._source_ranges(ready)
        self._know_ends(ready)
        groups: dict[tuple[Any, ...], list[Definition]] = {}
        for definition in ready:
            partitions = self._partitions(definition)
            ends = tuple(self._ends[definition.topic, p] for p in partitions)
            groups.setdefault((definition.plan, ends), []).append(definition)
        for group in groups.values():
            self._run_group(group, first, last)

    def _check_jvm(self) -> None:
        """Raises FatalError if Spark's JVM has ended: a new driver starts with a new one."""
        context: Any = self._spark.sparkContext
        if context._gateway.proc.poll() is not None:
            raise FatalError(
                "Spark's JVM has ended: if it was out of memory, raise barnabas.streams.driver.memory (--driver-memory)"
            )

    def _may_run(self, definition: Definition, at: float) -> bool:
        health = self._health[definition.topic]
        if not health.may_run(at):
            return False
        source = self._catalog.sources.get(definition.plan.source)
        if source is None or source.topic_id != definition.plan.source_id:
            what = "was deleted" if source is None else "was deleted and made again"
            self._stop(definition, f"the source {definition.plan.source} {what}: drop this topic, and make it again")
            return False
        return True

    def _stop(self, definition: Definition, error: str) -> None:
        if self._health[definition.topic].state != FAILED:
            self._say("error", "query.failed", topic=definition.topic, error=error)
        self._health[definition.topic].stopped(error)

    def _source(self, definition: Definition) -> Source:
        return self._catalog.sources[definition.plan.source]

    def _partitions(self, definition: Definition) -> range:
        """Those that source and results both have: after the source has grown, the results soon follow."""
        return range(min(definition.partitions, self._source(definition).partitions))

    def _source_ranges(self, ready: Sequence[Definition]) -> tuple[dict[Key, int], dict[Key, int]]:
        keys = {(d.plan.source, p): None for d in ready for p in self._partitions(d)}
        return list_offsets(self._cluster, keys, EARLIEST), list_offsets(self._cluster, keys, LATEST)

    def _know_ends(self, ready: Sequence[Definition]) -> None:
        unknown = [(d.topic, p) for d in ready for p in self._partitions(d) if (d.topic, p) not in self._ends]
        if unknown:
            # What is written may not be durable yet: a batch must begin at the log's end, wherever that is now.
            self._ends |= list_offsets(self._cluster, unknown, LATEST)

    def _run_group(self, group: list[Definition], first: dict[Key, int], last: dict[Key, int]) -> None:
        began = now()
        ranges = {}
        for partition in self._partitions(group[0]):
            key = (group[0].plan.source, partition)
            lo = self._ends[group[0].topic, partition]
            ranges[key] = (lo, max(lo, last[key]))
        for definition in group:
            self._health[definition.topic].lag = sum(hi - lo for lo, hi in ranges.values())
        if all(lo == hi for lo, hi in ranges.values()):
            for definition in group:
                self._health[definition.topic].ran(began, 0, 0, 0.0)
            return
        try:
            tick = self._plan_tick(group, ranges, first)
            reports = self._job(group).run(tick)
        except Exception as error:
            self._failed(group, error, first, last)
            return
        seconds = now() - began
        for number, definition in enumerate(group):
            mine = [report for report in reports if report.query == number]
            health = self._health[definition.topic]
            health.ran(now(), sum(r.written for r in mine), sum(r.dead for r in mine), seconds)
            for report in mine:
                key = (definition.topic, report.partition)
                health.lag -= report.next - self._ends[key]
                self._ends[key] = report.next

    def _plan_tick(self, group: list[Definition], ranges: dict[Key, tuple[int, int]], first: dict[Key, int]) -> Tick:
        """Splits for the tasks, of so many bytes that a tick stays short."""
        there = {key: (max(lo, min(first[key], hi)), hi) for key, (lo, hi) in ranges.items()}
        cut = self._planner.within_bytes(there, _MAX_TICK_BYTES)
        by_partition: dict[int, list[tuple[str, int, int, int, int]]] = {}
        for split in self._planner.plan(cut):
            piece = (split.path, split.start, split.end, split.lo, split.hi)
            by_partition.setdefault(split.partition, []).append(piece)
        parts = []
        for (source, partition), (lo, _) in ranges.items():
            hi = cut[source, partition][1]
            ends = [self._ends[definition.topic, partition] for definition in group]
            parts.append(Part(partition, lo, hi, by_partition.get(partition, []), ends))
        return Tick(group[0].plan.source, self._control.producer_id, parts)

    def _job(self, group: list[Definition]) -> Job:
        """The planned job of a group; the few used last are kept."""
        key = tuple(group)
        job = self._jobs.pop(key, None)
        if job is None:
            job = Job(self._spark, self._server, group, len(self._partitions(group[0])))
        self._jobs[key] = job
        while len(self._jobs) > _KEPT_JOBS:
            del self._jobs[next(iter(self._jobs))]
        return job

    def _failed(self, group: list[Definition], error: Exception, first: dict[Key, int], last: dict[Key, int]) -> None:
        """A job has failed. Of several queries each is run alone, so that only the one at fault has to wait."""
        reason = _reason(error)
        if TakenOverError.__name__ in reason:
            raise TakenOverError(reason)
        for definition in group:
            for partition in self._partitions(definition):
                self._ends.pop((definition.topic, partition), None)
        self._check_jvm()
        if "UNKNOWN_PRODUCER_ID" in reason:  # the broker was started again, and knows no driver yet
            self._control.take_over()
            return
        self._cluster.metadata([])  # raises ClientError if the broker is gone, which is no query's fault
        if len(group) > 1:
            self._know_ends(group)
            for definition in group:
                self._run_group([definition], first, last)
            return
        (definition,) = group
        if isinstance(error, QueryError) or MalformedRecordError.__name__ in reason:
            self._stop(definition, reason.split(f"{MalformedRecordError.__name__}: ")[-1])
            return
        self._health[definition.topic].failed(now(), reason)
        self._say("warning", "query.retrying", topic=definition.topic, error=reason)

    # --- telling ------------------------------------------------------------------------------------------------------

    def _tell(self) -> None:
        """Say how the queries are, at most once a second."""
        at = now()
        if at - self._told_at < _STATUS_SECONDS or not self._catalog.definitions:
            return
        self._told_at = at
        queries = [
            {"topic": name, "source": self._catalog.definitions[name].plan.source, **health.told(at)}
            for name, health in self._health.items()
        ]
        self._control.say({"type": "status", "at_ms": time.time_ns() // 1_000_000, "queries": queries})


def _reason(error: Exception) -> str:
    """One line: of a failure in a Python worker its own last line, else the first one."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    raised = [line for line in lines if line.split(":")[0].rpartition(".")[2].endswith(("Error", "Exception"))]
    if "Traceback (most recent call last):" in str(error) and raised:
        return raised[-1]
    return lines[0] if lines else type(error).__name__
