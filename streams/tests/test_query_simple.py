"""Queries that compute nothing run without the JVM, with Spark's results."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from barnabas.streams.tests.support import Logs

pytest.importorskip("pyspark", reason="pyspark is not installed: make setup-all")

from barnabas.streams.query import direct
from barnabas.streams.query.analysis import source_of
from barnabas.streams.query.job import Group, Job, begin
from barnabas.streams.query.sink import MALFORMED, ROW, Report, Sink
from barnabas.streams.query.tick import Part, Tick
from barnabas.streams.tests.query_support import definition, group_of, parts_of
from barnabas.wire.queries.plan import Values

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = "device STRING, seq BIGINT, temp DOUBLE, small TINYINT, flag BOOLEAN, day DATE, tags ARRAY<STRING>"
DEVICES = [None, "a", "b", "", "d'\"\\", "\u00e9\U0001f600", "\x01\n", "ab"]
TEMPS = [None, 0.0, -0.0, 80, 80.5, 1e-4, 1e7, 123456789.125, 1e300, 0.1 + 0.2, 1 / 3, -5.25]


@pytest.fixture(scope="module")
def session(spark: SparkSession) -> SparkSession:
    made = spark.newSession()
    made.conf.set("spark.sql.ansi.enabled", "false")
    return made


def check(spark: SparkSession, query: str, schema: str = SCHEMA) -> Any:
    values = Values(format="json" if schema else "raw", schema=schema)
    return Job.check(spark, query, source_of(spark, query), values).simple


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM s",
        "SELECT device, temp FROM s WHERE temp > 80",
        "SELECT Device AS d, d.SEQ FROM s d WHERE NOT (flag OR small < 3) AND device LIKE 'a%'",
        "SELECT seq FROM s WHERE seq IN (1, 2, 3) OR device IS NULL",
        "SELECT _value FROM s WHERE _offset >= 3 AND _partition = 1",
        "SELECT device AS _key, _value FROM s",
        "SELECT _offset, _partition, _topic, flag FROM s WHERE flag",
    ],
)
def test_what_computes_nothing_is_simple(session: SparkSession, query: str) -> None:
    schema = SCHEMA.replace(", day DATE, tags ARRAY<STRING>", "")
    assert check(session, query, schema) is not None


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM s",  # these include a date and a list
        "SELECT day FROM s",
        "SELECT temp * 2 AS temp FROM s",
        "SELECT 'a' AS a, device FROM s",
        "SELECT device FROM s WHERE temp * 2 > 80",
        "SELECT device FROM s WHERE upper(device) = 'A' AND temp > 80",
        "SELECT device FROM s WHERE length(device) % 2 = 0",
        "SELECT device FROM s WHERE day > '2024-01-01' OR size(tags) = 0",
        "SELECT device FROM s WHERE false",
        "SELECT _timestamp AS at FROM s",
        "SELECT device FROM s WHERE seq > temp",
        "SELECT cast(seq AS string) AS _key, _value FROM s",
    ],
)
def test_what_does_is_not(session: SparkSession, query: str) -> None:
    assert check(session, query) is None


def test_columns_with_signs_in_their_names(session: SparkSession) -> None:
    """Spark passes a data source no comparison with a name that has a dot: it evaluates that itself."""
    schema = "`my-col` BIGINT, `a.b` STRING, `\u0130` STRING"
    chosen = check(session, "SELECT `my-col`, `a.b` AS c, `\u0130` FROM s WHERE `MY-COL` > 1", schema)
    assert chosen.columns == (("my-col", "my-col"), ("c", "a.b"), ("\u0130", "\u0130"))
    assert {one.column for one in chosen.conditions} == {"my-col"}
    assert check(session, "SELECT `my-col` FROM s WHERE `a.b` = 'x'", schema) is None


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Logs:
    """All combinations of two columns' values, and values that do not fit the schema."""
    made = Logs(tmp_path_factory.mktemp("simple") / "data")
    for partition in range(2):
        values: list[bytes | None] = []
        for number, (device, temp) in enumerate((d, t) for d in DEVICES for t in TEMPS):
            row = {
                "device": device,
                "seq": number * 10**15 - 7,
                "temp": temp,
                "small": number % 5 - 2,
                "flag": [True, False, None][number % 3],
            }
            values.append(json.dumps(row, ensure_ascii=partition == 0).encode())
        made.write([*values, b'{"device": 7}', None, b"{"], "s", partition)
    return made


class Kept:
    """Replaces a task's writer, and keeps what it gets."""

    def __init__(self, sink: Sink, tick: Tick, task: int, again: bool) -> None:
        self.partition = tick.parts[task].partition

    def results(self, query: int, rows: pa.RecordBatch) -> None:
        FOUND.extend((ROW, query, self.partition, *record(row)) for row in rows.to_pylist())

    def malformed(self, rows: pa.RecordBatch) -> None:
        FOUND.extend((MALFORMED, -1, self.partition, *record(row), row["reason"]) for row in rows.to_pylist())

    def finish(self) -> None:
        FOUND.append(("end", self.partition))

    def reports(self) -> list[Report]:
        return []


FOUND: list[Any] = []


def record(row: dict[str, Any]) -> tuple[Any, ...]:
    key, value = (part.encode() if isinstance(part, str) else part for part in (row["key"], row["value"]))
    headers = [(header["key"], bytes(header["value"])) for header in row["headers"] or []]
    return row["offset"], key, value, row["timestamp"].timestamp() * 1000, headers


CONDITIONS = [
    "temp > 80", "temp >= 80", "temp < 80", "temp <= 80", "temp = 80", "temp <> 80", "NOT temp > 80",
    "temp BETWEEN 0 AND 81 AND device IS NOT NULL", "temp IS NULL OR temp > 80", "temp = 0", "NOT (temp > 1 OR flag)",
    "device = 'a'", "device <> 'a'", "device > 'a'", "device < '\u00e9'", "device IN ('a', 'b')",
    "device NOT IN ('a', 'b')",
    "device LIKE 'a%'", "device LIKE '%b'", "device NOT LIKE '%b%'", "device = '' OR seq < 5000000000000",
    "flag", "NOT flag", "flag IS NULL", "small IN (1, 2) AND seq >= 0", "small = -2",
    "seq > -8 AND seq <= 10000000000000",
    "_offset > 10 AND _partition = 1", "_key = 'k'", "_key IS NULL", "_topic = 's'", "_topic = 'other'",
]  # fmt: skip
COLUMNS = [
    "device, temp",
    'seq AS n, small, flag, device AS `a "b"`',
    "_value",
    "device AS _key, temp, _offset, _partition, _topic",
    "device AS _value, device AS _key",
]


#: Each with some of the conditions; CI has the others.
TEXTS = [f"SELECT {columns} FROM s" for columns in COLUMNS]
TEXTS += [f"SELECT {COLUMNS[n % len(COLUMNS)]} FROM s WHERE {one}" for n, one in enumerate(CONDITIONS)]


@pytest.mark.parametrize("third", [0, pytest.param(1, marks=pytest.mark.long), pytest.param(2, marks=pytest.mark.long)])
def test_the_results_are_those_of_spark(
    session: SparkSession, logs: Logs, monkeypatch: pytest.MonkeyPatch, third: int
) -> None:
    texts = TEXTS[third::3]
    parts = parts_of(logs, len(texts))
    group, selected = group_of(session, texts, SCHEMA, len(parts))
    queries = [one.simple for one in selected if one.simple is not None]
    assert len(queries) == len(texts)
    expected = by_spark(session, group, parts)
    definitions = [definition(f"q{number}", text, SCHEMA) for number, text in enumerate(texts)]
    found = in_worker(direct.direct_of("", definitions, selected, queries), parts, monkeypatch)
    for number, text in enumerate(texts):
        mine, theirs = ([row for row in rows if row[:2] == (ROW, number)] for rows in (found, expected))
        assert mine == theirs, text
    assert [row for row in found if row[0] == MALFORMED] == [row for row in expected if row[0] == MALFORMED]
    assert [row for row in found if row[0] == "end"] == [("end", 0), ("end", 1)]
    assert sum(row[0] == MALFORMED for row in found) == 4  # a missing value gives a row of nulls
    assert len({number for kind, number, *_ in found if kind == ROW}) > len(texts) * 0.8


def by_spark(spark: SparkSession, group: Group, parts: list[Part]) -> list[Any]:
    rows = group.rows()
    begin(spark, Tick(1, parts))
    found = [row.asDict(recursive=True) for row in rows.where(rows["kind"].isin(ROW, MALFORMED)).collect()]
    return [
        (row["kind"], row["query"], row["_partition"], *record(row), *([row["reason"]] if row["reason"] else []))
        for row in found
    ]


def in_worker(task: direct.Direct, parts: list[Part], monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    monkeypatch.setattr(direct, "Writer", Kept)
    monkeypatch.setattr(direct, "current", lambda: (Tick(1, parts), 0, False))
    FOUND.clear()
    numbers = pa.RecordBatch.from_pydict({"id": list(range(len(parts)))})
    list(task(iter([numbers])))
    return list(FOUND)
