"""Streams that share a query give the results of each stream alone, and of a batch query with Spark's own operators."""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: make setup-all")

from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from barnabas.storage.config import LogConfig
from barnabas.streams.encode.times import OBJECT
from barnabas.streams.query.errors import QueryError
from barnabas.streams.source.names import CORRUPT
from barnabas.streams.tests.support import NOW, Logs
from barnabas.streams.tests.windows_support import NOWHERE, Run, in_order, members_of, slots_of
from barnabas.streams.windows.plan import MemberError, check, parsed, planned, source_schema
from barnabas.streams.windows.session import streams_session
from barnabas.streams.windows.source import FORMAT
from barnabas.streams.windows.watched import CLOSE
from barnabas.wire.queries.plan import Values

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

VALUES = Values(
    format="json", schema="device STRING, temp DOUBLE, n INT, price DECIMAL(10,2), heat FLOAT, ts TIMESTAMP"
)
PARTITIONS, AHEAD_MS, LATER = 3, 60_000, NOW + 10**9
#: By the stream's name, what Spark SQL calls it if that differs.
AGGREGATES = {
    "count(*)": "",
    "count(temp)": "",
    "count_if(n > 50)": "",
    "avg(temp)": "",
    "avg(n)": "",
    "avg(price)": "",
    "sum(n)": "",
    "sum(temp)": "",
    "sum(price)": "",
    "sum(heat)": "",
    "min(n)": "",
    "max(temp)": "",
    "max(heat)": "",
    "min(price)": "",
    "max(device)": "",
    "min(ts)": "",
    "first(temp)": "min_by(temp, if(temp IS NULL, NULL, struct(ts, _partition, _offset)))",
    "first(n)": "min_by(n, if(n IS NULL, NULL, struct(ts, _partition, _offset)))",
    "last(device)": "max_by(device, if(device IS NULL, NULL, struct(ts, _partition, _offset)))",
    "spread(n)": "max(n) - min(n)",
    "spread(heat)": "max(heat) - min(heat)",
    "round(stddev(temp), 6)": "",
    "round(var_pop(n), 6)": "",
    "bool_or(n > 100)": "",
    "bit_xor(n)": "",
    "approx_count_distinct(n)": "",
    "max(n + 1) - min(n)": "",
}
KEYS = {
    "": "",
    "device": "device",
    "upper(device) AS d": "upper(device)",
    "n % 3 AS m": "n % 3",
    "device, n % 2 AS odd": "device, n % 2",
    "temp > 0 AS warm": "temp > 0",
    "heat": "heat",
    "temp": "temp",
    "price": "price",
    "date(ts) AS day": "date(ts)",
    "date_trunc('MINUTE', ts) AS minute": "date_trunc('MINUTE', ts)",
    "cast(device AS BINARY) AS b": "cast(device AS BINARY)",
    "named_struct('d', device, 'odd', n % 2) AS s": "named_struct('d', device, 'odd', n % 2)",
}
CONDITIONS = ("n >= 0", "n > 20 OR temp IS NULL", "device = 'a'", "temp > 100", "device IS NOT NULL")


class Kind(NamedTuple):
    """A random stream, as its text and as Spark SQL."""

    text: str
    windowed: str
    condition: str
    having: str
    aggregates: str
    keys: str
    names: tuple[str, ...]


@pytest.fixture(scope="module")
def session(spark: SparkSession) -> SparkSession:
    return streams_session(spark)


def text_of(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def write(logs: Logs, seed: int, count: int) -> None:
    moments = random.Random(seed)
    for partition in range(PARTITIONS):
        values: list[bytes] = []
        for number in range(count // PARTITIONS):
            at = NOW - moments.choice((0, 20_000, 150_000)) - moments.randrange(0, 20_000, 500)
            value: dict[str, Any] = {
                "device": moments.choice(("a", "b", "c", "", None)),
                "temp": moments.choice((None, 0.0, -0.0, *(quarter / 4 for quarter in range(-8, 40)))),
                "n": number,
                "price": moments.choice((None, 0.01, 99.99, 5)),
                "heat": moments.choice((None, 0.5, -0.0, 0.0, 1.25)),
                "ts": None if moments.random() < 0.03 else text_of(at),
            }
            values.append(json.dumps(value).encode() if moments.random() > 0.03 else b'{"device": ')
        logs.write(values, "sensors", partition, each=7)


def stream(moments: random.Random, *, sessions: bool) -> Kind:
    """A random stream over the same source, which may share a query with all others with its kind of window."""
    found = moments.sample(list(AGGREGATES), moments.randint(1, 5))
    key = moments.choice(list(KEYS))
    condition = moments.choice(CONDITIONS) if moments.random() < 0.6 else ""
    having = "count(*) > 2" if moments.random() < 0.3 else ""
    if sessions:
        gap = moments.choice((500, 1500, 4000))
        window, windowed = f"SESSION({gap}a)", f"session_window(ts, '{gap} milliseconds')"
    else:
        length = moments.choice((700, 1000, 7000, 60_000))
        step = moments.choice((length, length // 2, length // 7 + 50))
        offset = moments.choice((0, step // 3))
        window = f"INTERVAL({length}a, {offset}a) SLIDING({step}a)"
        windowed = f"window(ts, '{length} milliseconds', '{step} milliseconds', '{offset} milliseconds')"
    names = [part.rpartition(" AS ")[2] for part in KEYS and key.split(", ") if part] if "(" not in key else []
    names = names or ([key.rpartition(" AS ")[2]] if key else [])
    items = ", ".join(["_wstart", "_wend", *names, *(f"{each} AS a{n}" for n, each in enumerate(found))])
    text = (
        f"EVENT_TIME ts AS SELECT {items} FROM sensors {f'WHERE {condition} ' if condition else ''}"
        f"{f'PARTITION BY {key} ' if key else ''}{window} {f'HAVING {having}' if having else ''}"
    )
    shown = [f"({AGGREGATES[each] or each}) AS a{n}" for n, each in enumerate(found)]
    return Kind(text, windowed, condition or "true", having, ", ".join(shown), KEYS[key], tuple(names))


def by_spark(rows: DataFrame, kind: Kind) -> list[dict[str, Any]]:
    """The results of Spark's own window and aggregates."""
    keys = [F.expr(part).alias(f"k{n}") for n, part in enumerate(_apart(kind.keys))]
    found = rows.where(kind.condition).select(
        "*", *keys, (F.col("_partition") * 0).alias("one"), F.expr(kind.windowed).alias("w")
    )
    columns = [F.expr(item) for item in _apart(kind.aggregates)]
    by = [f"k{n}" for n in range(len(keys))] or ["one"]  # Spark accepts no session without a key that varies
    grouped = found.groupBy("w", *by)
    made = grouped.agg(F.count("*").alias("__c"), *columns)
    if kind.having:
        made = made.where("__c > 2")
    named = [F.col(f"k{n}").alias(name) for n, name in enumerate(kind.names)]
    results = [F.col("w.start").alias("_wstart"), F.col("w.end").alias("_wend"), *named]
    results += [F.col(f"a{n}") for n in range(len(columns))]
    shown = made.select(F.to_json(F.struct(*results), OBJECT))
    return in_order(json.loads(row[0]) for row in shown.collect())


def _apart(items: str) -> list[str]:
    """At commas outside parentheses."""
    found, depth = [""], 0
    for char in items:
        depth += (char == "(") - (char == ")")
        if char == "," and not depth:
            found.append("")
        else:
            found[-1] += char
    return [item.strip() for item in found if item.strip()]


def taken(session: SparkSession, path: Path) -> DataFrame:
    """The records that a stream takes."""
    options = {"path": str(path), "topic": "sensors", "format": "json", "bootstrap.servers": NOWHERE}
    inner = StructType([field for field in source_schema(VALUES).fields if field.name != CLOSE])
    rows = session.read.format(FORMAT).options(**options).schema(inner).load()
    own = F.unix_millis("_timestamp") + AHEAD_MS
    return rows.where(F.col(CORRUPT).isNull() & (F.unix_millis("ts") <= own)).cache()


def compare(session: SparkSession, tmp_path: Path, seed: int, count: int, alone: int, *, sessions: bool) -> None:
    logs = Logs(tmp_path / "data", LogConfig())
    write(logs, seed, 300)
    moments = random.Random(seed)
    kinds = [stream(moments, sessions=sessions) for _ in range(count)]
    shared = Run(session, logs.path, tmp_path / "shared", [kind.text for kind in kinds], VALUES)
    shared.mark(LATER)
    shared.start()
    shared.results()
    rows = taken(session, logs.path)
    assert rows.count() > 200
    for number, kind in enumerate(kinds):
        found = in_order(shared.streams.get(number, []))
        assert found == by_spark(rows, kind), kind.text
        if number < alone:
            run = Run(session, logs.path, tmp_path / str(number), kind.text, VALUES)
            run.mark(LATER)
            run.start()
            assert run.results() == found, kind.text
    assert sum(map(len, shared.streams.values())) > 10 * count


@pytest.mark.long
def test_random_streams_that_share_a_query_give_what_each_gives_alone(session: SparkSession, tmp_path: Path) -> None:
    compare(session, tmp_path, 1, 5, 1, sessions=False)


@pytest.mark.long
def test_random_sessions_that_share_a_query_give_what_each_gives_alone(session: SparkSession, tmp_path: Path) -> None:
    compare(session, tmp_path, 2, 3, 0, sessions=True)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3, 9))
def test_more_random_streams(session: SparkSession, tmp_path: Path, seed: int) -> None:
    compare(session, tmp_path, seed, 20, 2, sessions=seed % 3 == 0)


@pytest.mark.long
def test_a_stream_that_joins_takes_the_records_from_its_first_one_on(session: SparkSession, tmp_path: Path) -> None:
    """The others keep their state. One that leaves takes no more records, and its old state gives no results."""
    logs = Logs(tmp_path / "data", LogConfig())

    def put(*seconds: int) -> None:
        values = [json.dumps({"device": "a", "n": s, "ts": text_of(NOW - 60_000 + 1000 * s)}).encode() for s in seconds]
        logs.write(values, "sensors")

    texts = [
        f"EVENT_TIME ts WATERMARK 5s AS SELECT {what} AS x FROM sensors INTERVAL(10s)"
        for what in ("count(*)", "sum(n)", "max(n)")
    ]
    put(21, 22)
    run = Run(session, logs.path, tmp_path / "run", texts, VALUES)
    run.members = run.members[:1]
    run.start()
    run.results()
    put(23, 38)
    run.members = [run.members[0], members_of(texts)[1]._replace(starts=(3,))]  # one record comes before it
    run.start()
    run.results()
    assert run.streams == {0: [{"x": 3}]}
    put(39, 48)
    run.members = [run.members[1], members_of(texts)[2]]
    run.start()
    run.results()
    assert run.streams == {0: [{"x": 3}], 1: [{"x": 38 + 39}], 2: [{"x": 39}]}
    put(58)
    run.members = run.members[1:]
    run.start()
    run.results()
    assert run.streams == {0: [{"x": 3}], 1: [{"x": 38 + 39}], 2: [{"x": 39}, {"x": 48}]}


def test_of_streams_that_share_a_query_the_one_that_cannot_be_is_named(session: SparkSession) -> None:
    texts = [f"SELECT {what} AS x FROM sensors INTERVAL(10s)" for what in ("count(*)", "max(n)")]
    frame = session.createDataFrame([], source_schema(VALUES))
    members = members_of(texts)
    slots = slots_of(session, members, VALUES)
    other = parsed("SELECT max(nope) AS x FROM sensors INTERVAL(10s)")
    with pytest.raises(MemberError, match="no column `nope`") as caught:
        planned(session, [members[0], members[1]._replace(clauses=other[0], stages=other[1])], slots, frame, VALUES)
    assert caught.value.number == 1
    with pytest.raises(QueryError, match="no column `nope`"):
        check(session, *other, VALUES)
