"""Functions that the tests of query jobs share; needs pyspark."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from barnabas.streams.query.definitions import Definition
from barnabas.streams.query.job import Group, Job
from barnabas.streams.query.tick import Part, Piece, piece_of
from barnabas.streams.tests.support import Logs
from barnabas.streams.wal import LogDir
from barnabas.streams.wal import plan as plan_splits
from barnabas.wire.queries.plan import QueryPlan

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from barnabas.streams.query.facts import Facts


def group_of(spark: SparkSession, queries: Sequence[str], schema: str, tasks: int) -> tuple[Group, list[Facts]]:
    """Queries `q0`, `q1`, ... over `s`, and the facts of each."""
    definitions = [definition(f"q{number}", query, schema) for number, query in enumerate(queries)]
    found = [Job.check(spark, one.query, "s", one.plan.values) for one in definitions]
    return Group(spark, definitions, found, tasks), found


def parts_of(logs: Logs, queries: int) -> list[Part]:
    """All of topic `s`, with one task per partition, for `queries` queries that have no results yet."""
    log_dir = LogDir(logs.path)
    ranges = log_dir.ranges(log_dir.partitions("s"))
    splits: dict[int, list[Piece]] = {}
    for split in plan_splits(log_dir, ranges):
        splits.setdefault(split.partition, []).append(piece_of(split))
    return [Part("s", p, lo, hi, splits.get(p, []), [lo] * queries) for (_, p), (lo, hi) in ranges.items()]


def definition(topic: str, query: str, schema: str) -> Definition:
    """A query over `s`. With a schema, the values are JSON; without one they are bytes."""
    kind = "json" if schema else "raw"
    return Definition(topic, query, "dead-letter", QueryPlan(source="s", source_id="id", format=kind, schema=schema), 2)
