"""Decides where a tick runs: in the driver's own process, in its worker processes, or as a Spark job.

    few bytes, a query that needs no job              here: starting anything costs more than the work. Spark evaluates
                                                      in its JVM what is not simple, without tasks
    more, a query that needs no JVM, Spark is local   worker processes: what goes wrong there ends no other query
    all else                                          a Spark job

The driver does not wait for workers or Spark to start: until then it runs here, piece by piece, whatever may run here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec

from barnabas.streams.query.analyses import Analyses
from barnabas.streams.query.crew import Crew
from barnabas.streams.query.definitions import Definition
from barnabas.streams.query.direct import Direct, direct_of
from barnabas.streams.query.errors import NoSparkError, QueryError, StartingError
from barnabas.streams.query.evaluated import Evaluated
from barnabas.streams.query.facts import Facts
from barnabas.streams.query.health import now
from barnabas.streams.query.inline import CREW_BYTES, PIECE_BYTES, SMALL_BYTES, Inline
from barnabas.streams.query.job import Job, evaluated_alone
from barnabas.streams.query.pace import Pace
from barnabas.streams.query.sink import Report
from barnabas.streams.query.tick import Tick
from barnabas.streams.query.work import Worked

_KEPT, _MOST_EVALUATED = 32, 1000
_SIMPLE, _EVALUATED, _JOB = "simple", "evaluated", "job"

#: Queries with the same source and position, and the facts of each.
Group = Sequence[tuple[Definition, Facts]]
#: Identifies the definitions.
Key = tuple[bytes, ...]
#: Makes the tick of a group, of at most this many bytes of log.
Plan = Callable[[int], Tick]


class Done(NamedTuple):
    """A completed tick, and how long it took.

    `worked` is set if it was long because of others; `is_part` if there is more work that need not wait.
    """

    tick: Tick
    reports: list[Report]
    seconds: float
    worked: Worked | None = None
    is_part: bool = False


class Roads:
    """Runs ticks.

    `timeout` is the CPU seconds that a task may work; `held` is called, in another thread, for a tick that only takes
    that long by the clock.
    """

    def __init__(
        self,
        server: str,
        analyses: Analyses,
        inline: Inline,
        crew: Crew | None,
        pace: Pace,
        timeout: float,
        held: Callable[[Sequence[str], Worked], None],
    ) -> None:
        self._server, self._analyses, self._inline, self._crew = server, analyses, inline, crew
        self._pace, self._timeout, self._held = pace, timeout, held
        self._directs: dict[Key, Direct] = {}
        self._jobs: dict[tuple[int, Key], Job] = {}
        self._evaluated: dict[bytes, Evaluated | None] = {}
        self._has_run_job = False

    def run(self, group: Group, plan: Plan) -> Done | None:
        """Run a tick of a group; None if its runner is not ready yet.

        Raises NoSparkError, TooMuchError for a tick that must run elsewhere the next time, and whatever tasks raise.
        """
        began, topics = now(), [definition.topic for definition, _ in group]
        tick = plan(self._pace.most(topics))
        try:
            direct = self._direct(group)
        except StartingError:
            return None
        if direct is not None and tick.bytes <= self._most_here(group):
            piece = tick if tick.bytes <= PIECE_BYTES else plan(PIECE_BYTES)
            if self._inline.may_run(piece, topics):
                return self._here(direct, piece, topics, began, is_part=piece is not tick)
        try:
            if direct is not None and self._crew is not None and _is_simple(group):
                if not self._crew.is_ready():
                    raise StartingError
                return self._by_crew(self._crew, direct, tick, topics)
            return self._by_spark(group, tick, topics)
        except (StartingError, NoSparkError) as error:
            if direct is not None:
                piece = plan(PIECE_BYTES)
                if self._inline.may_run(piece, topics):
                    return self._here(direct, piece, topics, began, is_part=True)
            if isinstance(error, NoSparkError):
                raise
            return None

    def _most_here(self, group: Group) -> int:
        """The bytes of log that are read here even though another process could read them."""
        is_crew_to_start = self._crew is not None and not self._crew.is_up and _is_simple(group)
        return CREW_BYTES if is_crew_to_start else SMALL_BYTES

    def is_to_warm(self, group: Group) -> bool:
        """Whether to run a tick with nothing to read.

        So the first records of a group that needs Spark's jobs need not wait for workers and compilers.
        """
        return not self._has_run_job and self._direct(group) is None

    def look(self) -> None:
        """End what is no longer needed."""
        if self._crew is not None:
            self._crew.look(now())

    def end(self) -> None:
        """End worker processes."""
        if self._crew is not None:
            self._crew.end()

    def kind(self, definition: Definition, facts: Facts) -> str:
        """The kind of a query: it needs no JVM, no job, or a job. Different kinds are in different groups."""
        if facts.simple is not None:
            return _SIMPLE
        return _JOB if self._evaluator(definition, facts) is None else _EVALUATED

    def _evaluator(self, definition: Definition, facts: Facts) -> Evaluated | None:
        """An evaluator for a query in Spark's JVM without a job. Spark is up, because it has analysed the query."""
        key = msgspec.json.encode(definition)
        if key not in self._evaluated:
            while len(self._evaluated) >= _MOST_EVALUATED:
                del self._evaluated[next(iter(self._evaluated))]
            try:
                self._evaluated[key] = self._analyses.by_spark(evaluated_alone, definition, facts)
            except QueryError:  # a job can do it, or says why not
                self._evaluated[key] = None
        return self._evaluated[key]

    def _here(self, direct: Direct, tick: Tick, topics: Sequence[str], began: float, *, is_part: bool) -> Done:
        cpu = next((query.cpu_seconds for query in direct.queries if isinstance(query, Evaluated)), None)
        return Done(tick, self._inline.run(direct, tick, topics, cpu), now() - began, is_part=is_part)

    def _direct(self, group: Group) -> Direct | None:
        """The task of a group whose queries need no job."""
        queries = [facts.simple or self._evaluator(definition, facts) for definition, facts in group]
        able = [query for query in queries if query is not None]
        if len(able) < len(group):
            return None
        key = _key(group)
        direct = self._directs.pop(key, None)
        if direct is None:
            direct = direct_of(self._server, *_apart(group), able)
        self._directs[key] = direct
        while len(self._directs) > _KEPT:
            del self._directs[next(iter(self._directs))]
        return direct

    def _by_crew(self, crew: Crew, direct: Direct, tick: Tick, topics: Sequence[str]) -> Done:
        began = now()
        reports, worked = crew.run(direct, tick, self._timeout, lambda worked: self._held(topics, worked))
        seconds = now() - began
        self._pace.learn(topics, tick.bytes, seconds)
        return Done(tick, reports, seconds, worked)

    def _by_spark(self, group: Group, tick: Tick, topics: Sequence[str]) -> Done:
        began = now()
        job = self._job(group, len(tick.parts))
        cold = not job.has_run
        reports = job.run(tick, self._timeout, self._pace.rows(topics), lambda worked: self._held(topics, worked))
        self._has_run_job = True
        if not tick.records:
            return Done(tick, reports, 0.0)
        seconds = now() - began
        self._pace.learn(topics, tick.bytes, seconds, cold=cold)
        return Done(tick, reports, seconds, job.worked)

    def _job(self, group: Group, tasks: int) -> Job:
        """The planned job of a group; the few most recent ones are kept."""
        key = (tasks, _key(group))
        job = self._jobs.pop(key, None)
        if job is None:
            job = Job(self._analyses.spark(), self._server, *_apart(group), tasks)
        self._jobs[key] = job
        while len(self._jobs) > _KEPT:
            del self._jobs[next(iter(self._jobs))]
        return job


def _key(group: Group) -> Key:
    return tuple(msgspec.json.encode(definition) for definition, _ in group)


def _apart(group: Group) -> tuple[list[Definition], list[Facts]]:
    return [definition for definition, _ in group], [facts for _, facts in group]


def _is_simple(group: Group) -> bool:
    """Whether no query of a group needs the JVM."""
    return all(facts.simple is not None for _, facts in group)
