"""The private doors into Spark: all are open in the installed Spark, and there is a fallback for each shut one.

See docs/decisions/0020-private-doors.md. `compat_tests/doors` shows the effect for the user of a query topic.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from barnabas.streams.tests.support import Logs

pytest.importorskip("pyspark", reason="pyspark is not installed: make setup-all")

from py4j.protocol import Py4JNetworkError

from barnabas.streams import doors
from barnabas.streams.query import catalyst, linear, room
from barnabas.streams.query.analysis import source_of
from barnabas.streams.query.catalyst import companion, jvm_has_ended, jvm_of, jvm_process, kind_of
from barnabas.streams.query.errors import QueryError
from barnabas.streams.query.job import Job, begin
from barnabas.streams.query.sink import ROW
from barnabas.streams.query.tick import Tick
from barnabas.streams.tests.query_support import group_of, parts_of
from barnabas.wire.queries.plan import Values

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.door
SCHEMA = "device STRING, temp DOUBLE"
DDL = "a INT NOT NULL, t STRING"


@pytest.fixture(scope="module")
def session(spark: SparkSession) -> SparkSession:
    made = spark.newSession()
    made.conf.set("spark.sql.ansi.enabled", "false")
    return made


@pytest.fixture(autouse=True)
def nothing_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doors, "_said", set())


def check(spark: SparkSession, query: str) -> Any:
    return Job.check(spark, query, source_of(spark, query), Values(format="json", schema=SCHEMA))


def warm_ones(spark: SparkSession, logs: Logs) -> list[str]:
    parts = parts_of(logs, 1)
    group, _ = group_of(spark, ["SELECT upper(device) AS x FROM s WHERE temp > 80"], SCHEMA, len(parts))
    rows = group.rows()
    begin(spark, Tick(1, parts))
    return [json.loads(row["value"])["x"] for row in rows.collect() if row["kind"] == ROW]


@pytest.fixture
def logs(tmp_path: Path) -> Logs:
    made = Logs(tmp_path)
    made.write([b'{"device":"a","temp":95.5}', b'{"device":"b","temp":20}', b'{"device":"c","temp":81}'], "s")
    return made


def test_all_are_open(session: SparkSession, caplog: pytest.LogCaptureFixture) -> None:
    """Fails with a Spark whose internals have changed: queries are then slower, or refused."""
    found = check(session, "SELECT device, temp FROM s WHERE temp > 80")
    assert [(one.kind, one.column, one.value) for one in found.least] == [
        ("IsNotNull", "temp", None), ("GreaterThan", "temp", 80.0),
    ]  # fmt: skip
    assert found.simple is not None
    assert check(session, "SELECT regexp_extract(device, '(a+)', 1) AS x FROM s WHERE device RLIKE 'a+'").simple is None
    assert jvm_process(session).poll() is None
    assert not jvm_has_ended(session)
    assert room.heap_of(session) > 100 << 20
    cluster: Any = SimpleNamespace(
        _jvm=session._jvm, sparkContext=SimpleNamespace(master="yarn", getConf=lambda: {"spark.executor.memory": "3g"})
    )
    assert room.heap_of(cluster) == 3 << 30
    assert not caplog.records


def moved(package: Any, name: str) -> Any:
    return companion(package, f"{name}V2")


def without_plans(frame: Any) -> Any:
    return frame._jdf.queryExecution().planAsOptimised()


@pytest.mark.parametrize(
    ("name", "other"),
    [("pushdown.companion", moved), ("analysis.optimised_plan", without_plans)],
    ids=["a class has gone", "a method has gone"],
)
def test_where_spark_does_not_tell_conditions_a_query_reads_every_row(
    session: SparkSession, logs: Logs, name: str, other: Any, monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    before = warm_ones(session, logs)
    monkeypatch.setattr(f"barnabas.streams.query.{name}", other)
    found = check(session, "SELECT device FROM s WHERE temp > 80")
    assert (found.least, found.simple) == ((), None)
    assert warm_ones(session, logs) == before == ["A", "C"]
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "queries look at every row in the JVM" in caplog.text


@pytest.mark.parametrize(
    "expression",
    ["device RLIKE 'a'", "device LIKE 'a%'", "device ILIKE 'a_'", "regexp_like(device, 'a')", "split(device, 'a')",
     "regexp_replace(device, 'a', 'b')", "regexp_extract(device, '(a)')", "filter(array(device), t -> t RLIKE 'a')"],
)  # fmt: skip
def test_a_regular_expression_of_another_name_is_refused_and_never_left_to_java(
    session: SparkSession, expression: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert check(session, f"SELECT {expression} AS x FROM s")
    names = ("RLike", "Like", "ILike", "StringSplit", "RegExpReplace", "RegExpExtract")
    monkeypatch.setattr(linear, "kind_of", lambda node: {name: f"{name}V2" for name in names}.get(*[kind_of(node)] * 2))
    with pytest.raises(QueryError, match="other names for regular expressions"):
        check(session, f"SELECT {expression} AS x FROM s")


def test_without_re2_regular_expressions_are_refused(session: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    jvm = jvm_of(session)
    others = SimpleNamespace(org=SimpleNamespace(apache=SimpleNamespace(hadoop=jvm.nosuch, spark=jvm.org.apache.spark)))
    monkeypatch.setattr(linear, "jvm_of", lambda _: others)
    with pytest.raises(QueryError, match="comes without RE2/J"):
        check(session, "SELECT device RLIKE 'a' AS x FROM s")
    assert check(session, "SELECT device LIKE 'a%' AS x FROM s")


def test_an_executor_whose_memory_is_not_told_has_the_least(
    session: SparkSession, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(room, "jvm_of", lambda _: jvm_of(session).nosuch)
    cluster: Any = SimpleNamespace(sparkContext=SimpleNamespace(master="yarn", getConf=dict))
    assert room.heap_of(cluster) == 0
    assert "a row may be as large as the least heap allows" in caplog.text


class NoAnswer:
    """The tracker of a JVM that is gone."""

    def getActiveJobsIds(self) -> None:
        raise Py4JNetworkError("Answer from Java side is empty")


@pytest.mark.parametrize("insides", [{}, {"_gateway": None}, {"_gateway": SimpleNamespace()}], ids=str)
def test_a_jvm_whose_process_is_not_told_is_asked_whether_it_lives(
    session: SparkSession, insides: dict[str, object]
) -> None:
    context = SimpleNamespace(statusTracker=session.sparkContext.statusTracker, **insides)
    spark: Any = SimpleNamespace(sparkContext=context)
    assert not jvm_has_ended(spark)
    context.statusTracker = NoAnswer
    assert jvm_has_ended(spark)


def test_each_is_said_once_in_a_process(caplog: pytest.LogCaptureFixture) -> None:
    for number in range(3):
        doors.warn_shut("a door", "it is slower", TypeError(f"a\nb {number}"))
    assert [record.getMessage() for record in caplog.records] == ["a door has changed, so it is slower: a"]


def test_types_are_read_by_the_public_side(session: SparkSession) -> None:
    assert check(session, "SELECT array(named_struct('a', 1L, 'b c', device)) AS x FROM s").value_schema == (
        "x array<struct<a:bigint,b c:string>>"
    )


def test_frames_are_made_with_pandas_if_it_must_be(session: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    def shut(*_: object, **__: object) -> None:
        raise TypeError("another version")

    def same(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches

    ways = [(catalyst.empty_frame(session, DDL), catalyst.map_in_arrow(session.range(3), same, "id bigint"))]
    monkeypatch.setattr(catalyst, "UserDefinedFunction", shut)
    monkeypatch.setattr(catalyst, "jvm_of", shut)
    ways.append((catalyst.empty_frame(session, DDL), catalyst.map_in_arrow(session.range(3), same, "id bigint")))
    for empty, mapped in ways:
        assert (empty.schema.simpleString(), empty.collect()) == ("struct<a:int,t:string>", [])
        assert [field.nullable for field in empty.schema.fields] == [False, True]
        assert [row.id for row in mapped.collect()] == [0, 1, 2]
