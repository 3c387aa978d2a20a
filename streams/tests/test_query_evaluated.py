"""A few rows are evaluated without a job: with the results that a job has."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from barnabas.streams.tests.support import Logs

pytest.importorskip("pyspark", reason="pyspark is not installed: make setup-all")

from pyspark.sql.types import LongType

from barnabas.streams.query.analysis import select
from barnabas.streams.query.catalyst import companion
from barnabas.streams.query.evaluated import Evaluated, evaluated
from barnabas.streams.query.job import _frame, begin
from barnabas.streams.query.parts import UNREADABLE
from barnabas.streams.query.scan import Scan
from barnabas.streams.query.sink import ROW
from barnabas.streams.query.source_rows import arrow_schema, row_schema, value_columns
from barnabas.streams.query.tick import Part, Tick
from barnabas.streams.tests.query_support import group_of, parts_of
from barnabas.wire.queries.plan import Values

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = "device STRING, temp DOUBLE, n BIGINT, at TIMESTAMP, day DATE, tags ARRAY<STRING>, price DECIMAL(9,2)"
READING = Values(format="json", schema=SCHEMA)
QUERIES = [
    "SELECT * FROM s",
    "SELECT upper(device) AS d, temp * 2 AS t, n % 3 AS m FROM s WHERE temp + n > 40 OR n IS NULL",
    "SELECT device, at, day, tags, price FROM s WHERE size(tags) > 0",
    "SELECT concat(device, '-', n) AS _key, _value FROM s WHERE device RLIKE 'd[0-9]*[13579]$'",
    "SELECT regexp_extract(device, 'd([0-9]+)', 1) AS number, date_trunc('HOUR', at) AS hour FROM s",
    "SELECT CASE WHEN temp > 50 THEN 'hot' WHEN temp > 10 THEN 'warm' END AS how, _offset AS o FROM s WHERE n <> 4",
    "SELECT timestamp_millis(n) AS _timestamp, transform(tags, tag -> lower(tag)) AS tags FROM s",
    "SELECT device FROM s WHERE length(device) > 1000",
    "SELECT decode(unhex('41'), 'UTF-8') AS a, price * 3 AS p, to_date(device) AS no FROM s WHERE day > '2024-01-03'",
]


@pytest.fixture(scope="module")
def session(spark: SparkSession) -> SparkSession:
    made = spark.newSession()
    made.conf.set("spark.sql.ansi.enabled", "false")
    return made


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Logs:
    made = Logs(tmp_path_factory.mktemp("evaluated") / "data")
    values: list[bytes | None] = [
        json.dumps({
            "device": None if number % 7 == 3 else f"d{number}",
            "temp": [None, -0.0, number * 1.25, 1e300][number % 4],
            "n": None if number % 5 == 4 else number,
            "at": f"2024-01-02T03:04:05.{number:06}Z",
            "day": f"2024-01-{number % 28 + 1:02}",
            "tags": [None, [], ["A", None], ["x"] * (number % 9)][number % 4],
            "price": number / 4,
        }).encode()
        for number in range(60)
    ]  # fmt: skip
    made.write([*values, None], "s")
    return made


def compiled(spark: SparkSession, query: str, values: Values = READING) -> tuple[Evaluated | None, Scan]:
    columns = value_columns(values)
    schema = row_schema(columns)
    scan = Scan(arrow_schema(schema), arrow_schema(columns), values)
    frame = _frame(spark, scan, schema, 1)
    return evaluated(spark, frame, select(spark, query, "s", frame, columns)), scan


def by_job(spark: SparkSession, query: str, parts: list[Part]) -> list[dict[str, Any]]:
    group, _ = group_of(spark, [query], SCHEMA, len(parts))
    rows = group.rows()
    begin(spark, Tick(1, parts))
    wanted = ("offset", "timestamp", "key", "value", "headers")
    return [
        {name: bytes(row[name]) if isinstance(row[name], bytearray) else row[name] for name in wanted}
        for row in (found.asDict(recursive=True) for found in rows.where(rows["kind"] == ROW).collect())
    ]


def as_seen(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {
            **row,
            "timestamp": row["timestamp"] and row["timestamp"].timestamp(),
            "headers": [(h["key"], bytes(h["value"])) for h in row["headers"] or []],
        }
        for row in rows
    ]


@pytest.mark.parametrize("query", QUERIES)
def test_the_results_are_those_of_a_job(session: SparkSession, logs: Logs, query: str) -> None:
    parts = parts_of(logs, 1)
    found, scan = compiled(session, query)
    assert found is not None
    mine: list[dict[str, Any]] = []
    for rows in scan.records(Tick(1, parts), 0):
        assert rows.column(UNREADABLE).null_count == len(rows)
        mine += found.results(rows).to_pylist()
    assert as_seen(mine) == as_seen(by_job(session, query, parts))
    assert bool(mine) == ("1000" not in query)


def test_the_rows_of_one_call_do_not_come_again_with_the_next(session: SparkSession, logs: Logs) -> None:
    found, scan = compiled(session, "SELECT n + 1 AS n FROM s WHERE n < 50")
    assert found is not None
    table = pa.Table.from_batches(scan.records(Tick(1, parts_of(logs, 1)), 0))
    (rows,) = table.combine_chunks().to_batches()
    halves = [found.results(rows.slice(at, 30)) for at in (0, 30)]
    together = pa.Table.from_batches(halves).to_pylist()
    assert together == found.results(rows).to_pylist()
    assert len(halves[0]) > 0 < len(halves[1])
    assert found.results(rows.slice(0, 0)).num_rows == 0


def test_what_the_jvm_spends_is_told(session: SparkSession, logs: Logs) -> None:
    found, scan = compiled(session, "SELECT n + 1 AS n FROM s")
    assert found is not None
    before = found.cpu_seconds()
    for rows in scan.records(Tick(1, parts_of(logs, 1)), 0):
        found.results(rows)
    assert found.cpu_seconds() > before


def test_a_function_of_the_operators_needs_a_job(session: SparkSession) -> None:
    session.udf.register("plus_one", lambda n: n + 1, LongType())
    assert compiled(session, "SELECT plus_one(n) AS n FROM s")[0] is None


@pytest.mark.door
def test_where_spark_has_no_such_projection_each_tick_is_a_job(
    session: SparkSession, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("barnabas.streams.doors._said", set())
    moved = "barnabas.streams.query.evaluated.companion"
    monkeypatch.setattr(moved, lambda package, name: companion(package, f"{name}V2"))
    assert compiled(session, "SELECT n + 1 AS n FROM s")[0] is None
    assert "every tick of such a query is a job" in caplog.text
