"""Where a tick runs: it depends on the data that it reads, the needs of its queries, and what is available."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: make setup-all")

from barnabas.streams.query import roads as roads_module
from barnabas.streams.query.errors import NoSparkError, QueryError, StartingError
from barnabas.streams.query.facts import Facts
from barnabas.streams.query.growth import Bound
from barnabas.streams.query.inline import CREW_BYTES, PIECE_BYTES, SMALL_BYTES
from barnabas.streams.query.job import evaluated_alone
from barnabas.streams.query.pace import FIRST_BYTES, Pace
from barnabas.streams.query.roads import Done, Roads
from barnabas.streams.query.simple import Simple
from barnabas.streams.query.tick import Part, Tick
from barnabas.streams.tests.query_support import definition

SIMPLE = Simple((), "_key", "_timestamp", "_value", ())


def group(*, simple: bool = True) -> list[Any]:
    facts = Facts(frozenset({"_value"}), "raw", "", (), SIMPLE if simple else None, Bound({}, 0), pa.schema([]))
    return [(definition("q", "SELECT _value FROM s", ""), facts)]


def of_bytes(size: int) -> Callable[[int], Tick]:
    """Makes the tick of a backlog of `size` bytes."""

    def plan(most: int) -> Tick:
        read = min(size, most)
        return Tick(1, [Part("s", 0, 0, read, [("place", 0, read, 0, read, "", "", ())], [0])])

    return plan


class World:
    """What is available to run a tick, and what has run: where, and how many bytes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, crew: bool | None = None, spark: Exception | None = None):
        self.ran: list[tuple[str, int]] = []
        self.elsewhere, self.crew_is_ready, self.no_spark = False, crew, spark
        monkeypatch.setattr(roads_module, "Job", lambda *_: _Job(self))
        own: Any = self
        here: Any = _Inline(self)
        workers: Any = None if crew is None else _Crew(self)
        self.roads = Roads("", own, here, workers, Pace(), 1.0, lambda *_: None)

    def by_spark(self, ask: Callable[..., Any], *arguments: object) -> Any:
        """Spark cannot evaluate a query without a job."""
        assert ask is evaluated_alone
        self.spark()
        raise QueryError("Spark cannot take this query: why")

    def spark(self) -> None:
        if self.no_spark is not None:
            raise self.no_spark

    def run(self, size: int, *, simple: bool = True) -> Done | None:
        return self.roads.run(group(simple=simple), of_bytes(size))


class _Inline:
    def __init__(self, world: World) -> None:
        self._world = world

    def may_run(self, tick: Tick, topics: Sequence[str]) -> bool:
        return not self._world.elsewhere

    def run(self, direct: Any, tick: Tick, topics: Sequence[str], cpu: Callable[[], float] | None) -> list[Any]:
        assert cpu is None
        self._world.ran.append(("here", tick.bytes))
        return []


class _Crew:
    is_up = False

    def __init__(self, world: World) -> None:
        self._world = world

    def is_ready(self) -> bool:
        return bool(self._world.crew_is_ready)

    def run(self, direct: Any, tick: Tick, *_: object) -> tuple[list[Any], None]:
        self._world.ran.append(("crew", tick.bytes))
        return [], None


class _Job:
    has_run = False
    worked = None

    def __init__(self, world: World) -> None:
        self._world = world

    def run(self, tick: Tick, *_: object) -> list[Any]:
        self._world.ran.append(("spark", tick.bytes))
        return []


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Callable[..., World]:
    return lambda **there: World(monkeypatch, **there)


def test_few_bytes_are_read_here_and_more_by_the_crew(
    world: Callable[..., World], monkeypatch: pytest.MonkeyPatch
) -> None:
    there = world(crew=True)
    there.run(SMALL_BYTES)
    there.run(CREW_BYTES)  # starting workers would take longer
    there.run(10 * FIRST_BYTES)
    assert there.ran == [("here", SMALL_BYTES), ("here", PIECE_BYTES), ("crew", FIRST_BYTES)]
    monkeypatch.setattr(_Crew, "is_up", True)
    there.run(SMALL_BYTES)
    there.run(SMALL_BYTES + 1)
    assert there.ran[3:] == [("here", SMALL_BYTES), ("crew", SMALL_BYTES + 1)]


def test_what_is_not_to_be_read_here_is_read_by_the_crew(world: Callable[..., World]) -> None:
    there = world(crew=True)
    there.elsewhere = True
    there.run(100)
    assert there.ran == [("crew", 100)]


def test_while_the_crew_starts_a_backlog_is_read_here_piece_by_piece(world: Callable[..., World]) -> None:
    there = world(crew=False)
    done = there.run(FIRST_BYTES)
    assert there.ran == [("here", PIECE_BYTES)]
    assert done is not None
    assert done.is_part  # the rest need not wait
    there.elsewhere = True
    assert there.run(FIRST_BYTES) is None
    assert len(there.ran) == 1


def test_a_query_that_needs_the_jvm_is_sparks_however_little_there_is(world: Callable[..., World]) -> None:
    there = world(crew=True)
    there.run(100, simple=False)
    assert there.ran == [("spark", 100)]


def test_what_needs_the_jvm_waits_for_spark_or_hears_that_there_is_none(world: Callable[..., World]) -> None:
    assert world(crew=True, spark=StartingError()).run(100, simple=False) is None
    with pytest.raises(NoSparkError, match="no Java"):
        world(crew=True, spark=NoSparkError("no Java")).run(100, simple=False)


def test_queries_of_different_kinds_are_told_apart_and_what_cannot_be_evaluated_has_jobs(
    world: Callable[..., World],
) -> None:
    there = world(crew=True)
    ((definition, simple),), ((_, other),) = group(), group(simple=False)
    assert there.roads.kind(definition, simple) != there.roads.kind(definition, other)
    there.run(100, simple=False)
    assert there.ran == [("spark", 100)]


def test_where_tasks_run_on_other_machines_a_backlog_is_sparks(world: Callable[..., World]) -> None:
    there = world()
    there.run(SMALL_BYTES)
    there.run(FIRST_BYTES)
    assert there.ran == [("here", SMALL_BYTES), ("spark", FIRST_BYTES)]
    for error in (StartingError(), NoSparkError("no Java")):
        there = world(spark=error)
        done = there.run(FIRST_BYTES)
        assert there.ran == [("here", PIECE_BYTES)]
        assert done is not None
        assert done.is_part


def test_the_first_job_runs_with_nothing_and_only_for_queries_that_have_jobs(world: Callable[..., World]) -> None:
    there = world(crew=True)
    assert not there.roads.is_to_warm(group())
    assert there.roads.is_to_warm(group(simple=False))
    there.run(0, simple=False)
    assert there.ran == [("spark", 0)]
    assert not there.roads.is_to_warm(group(simple=False))
