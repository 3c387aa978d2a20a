"""Spark takes a client's text as it is written, through each door for texts."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytest.importorskip("pyspark", reason="pyspark is not installed: make setup-all")

from barnabas.streams.query.analysis import resolve, source_of
from barnabas.streams.query.catalyst import kind_of, nodes, seq
from barnabas.streams.query.catalyst import parsed as parsed_by_spark
from barnabas.streams.query.errors import QueryError
from barnabas.streams.query.job import Job, selected
from barnabas.streams.query.session import SUBSTITUTE
from barnabas.streams.query.source_rows import value_columns
from barnabas.streams.windows.plan import check, parsed, source_schema
from barnabas.streams.windows.session import streams_session
from barnabas.wire.queries.plan import Values
from barnabas.wire.streams.tokens import STRING, SyntaxProblem, string_value, tokens
from barnabas.wire.tests.strategies import examples

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

VALUES = Values(format="json", schema="device STRING, temp DOUBLE, at TIMESTAMP")
#: A place for an expression, for each door through which text comes in.
QUERIES = {
    "SELECT": "SELECT {} AS x FROM s",
    "WHERE": "SELECT device FROM s WHERE {} = device",
    "key": "SELECT device, {} AS _key FROM s",
    "FROM": "FROM s SELECT {} AS x",
}
STREAMS = {
    "stream's SELECT": "SELECT {} AS x, count(*) AS c FROM s INTERVAL(1s)",
    "aggregate": "SELECT max({}) AS x FROM s INTERVAL(1s)",
    "PRE_FILTER": "PRE_FILTER({} = device) AS SELECT count(*) AS c FROM s INTERVAL(1s)",
    "SUBTABLE": "SUBTABLE({}) AS SELECT count(*) AS c FROM s INTERVAL(1s)",
    "stream's WHERE": "SELECT count(*) AS c FROM s WHERE {} = device INTERVAL(1s)",
    "PARTITION BY": "SELECT count(*) AS c FROM s PARTITION BY {} AS k INTERVAL(1s)",
    "HAVING": "SELECT max(device) AS m FROM s INTERVAL(1s) HAVING {} = m_",
    "STATE_WINDOW": "SELECT count(*) AS c FROM s STATE_WINDOW({})",
    "EVENT_WINDOW": "SELECT count(*) AS c FROM s EVENT_WINDOW(START WITH {} = device END WITH true)",
    "JOIN": "SELECT count(*) AS c FROM s JOIN o ON s.device = o._key WHERE o.device = {} INTERVAL(1s)",
}
DOORS = {**QUERIES, **STREAMS}
#: A streams door takes seconds: two of them are in the quick tests.
EACH_DOOR = [
    pytest.param(door, marks=[pytest.mark.long] * (door in STREAMS and door not in ("PRE_FILTER", "JOIN")))
    for door in DOORS
]
ENVIRONMENT = ["'${env:PATH}'", "'${PATH}'", "'${system:user.home}'", "'${spark:spark.app.name}'", '"${env:PATH}"']
#: References that Spark would replace with values from outside the text.
REFUSED = [
    ":name",
    "?",
    "IDENTIFIER(:name)",
    "IDENTIFIER('dev' || 'ice')",
    "session.name",
    "system.session.name",
    "current_user",
    "current_timezone()",
    "current_database()",
    "current_catalog()",
    "system.builtin.upper(device)",
    "spark_catalog.default.upper(device)",
    "input_file_name()",
    "getvariable('name')",
    "device COLLATE UNICODE_CI",
    "CAST(device AS STRING COLLATE UTF8_LCASE)",
    "try_cast(device AS STRING COLLATE UNICODE)",
    "/*+ BROADCAST(s) */ device",
    "(SELECT 'a')",
    "device:a",
    "${env:PATH}",
]


#: The settings that decide where a quoted text ends, and what it means.
PARTS = [
    "\\", "'", '"', "n", "t", "0", "1", "7", "u", "U", "Z", "%", "_", "a", "é", "4", "e", " ", "\n", "\\\\", "''", '""',
    "\\'", '\\"', "\\u00e9", "\\101", "\\U0001F600", "\\ud83d", "\\ude00", "--",
]  # fmt: skip


@pytest.fixture(scope="module")
def hostile(spark: SparkSession) -> Iterator[SparkSession]:
    """A session with changed settings, as an operator's file may leave it."""
    made = spark.newSession()
    made.conf.set("spark.sql.ansi.enabled", "false")
    streams = streams_session(spark)
    for session in (spark, made, streams):
        session.conf.set(SUBSTITUTE, "true")
        session.conf.set("spark.sql.debug.maxToStringFields", "1000")
    yield made
    for session in (spark, made, streams):
        session.conf.set(SUBSTITUTE, "false")


def understood(spark: SparkSession, door: str, expression: str) -> str:
    """Spark's understanding of a text that comes in through a door."""
    text = DOORS[door].format(expression).replace("m_", "max(device)")
    if door in QUERIES:
        found, _ = selected(spark, text, source_of(spark, text), VALUES)
        return " ".join(map(str, found))
    joined = VALUES if door == "JOIN" else None
    session, (clauses, stages) = streams_session(spark), parsed(text)
    results = check(session, clauses, stages, VALUES, joined).results
    if joined is not None:
        return str(results._jdf.queryExecution().analyzed())
    # A window that records open and close is made in Python: its inputs are not in its results' plan.
    frame = session.createDataFrame([], source_schema(VALUES))
    inputs = resolve(session, stages.inputs, "s", frame, value_columns(VALUES))
    return f"{inputs} {results._jdf.queryExecution().analyzed()}"


@pytest.mark.parametrize("door", EACH_DOOR)
def test_nothing_is_put_into_a_text(hostile: SparkSession, door: str) -> None:
    home = str(hostile._jvm.java.lang.System.getProperty("user.home"))  # type: ignore[union-attr]
    secrets = [os.environ["PATH"], home, str(hostile.conf.get("spark.app.name"))]
    found = understood(hostile, door, f"concat({', '.join(ENVIRONMENT)})")
    assert all(text[1:-1] in found for text in ENVIRONMENT), found
    for secret in secrets:
        assert not re.search(rf"(?<![/\w.]){re.escape(secret)}(?![/\w.])", found), secret


@pytest.mark.parametrize("door", EACH_DOOR)
def test_what_stands_elsewhere_than_in_the_text_is_refused(hostile: SparkSession, door: str) -> None:
    for text in REFUSED:
        with pytest.raises(QueryError) as caught:
            understood(hostile, door, text)
        assert os.environ["PATH"] not in str(caught.value)


def test_nothing_is_put_into_a_schema(hostile: SparkSession) -> None:
    assert value_columns(Values(format="json", schema="`${env:PATH}` INT")).names == ["${env:PATH}"]
    query = "SELECT `${env:PATH}` AS x FROM s"
    assert Job.check(hostile, query, "s", Values(format="json", schema="`${env:PATH}` INT")).value_schema == "x int"
    for schema in ("a STRING COLLATE UNICODE_CI", "a ARRAY<STRUCT<b: STRING COLLATE UTF8_LCASE>>", "a ${env:PATH}"):
        with pytest.raises(QueryError) as caught:
            value_columns(Values(format="json", schema=schema))
        assert os.environ["PATH"] not in str(caught.value)


@pytest.mark.parametrize(
    "source",
    [
        "IDENTIFIER('a' || 'b')", "IDENTIFIER(:name)", "s@v1", "s VERSION AS OF 1", "s TIMESTAMP AS OF '2020-01-01'",
        "s TABLESAMPLE (10 PERCENT)", "STREAM s", "range(10)", "TABLE(s)", "spark_catalog.default.s", "default.s",
        "parquet.`/etc/passwd`", "s LIMIT :name", "s WATERMARK at DELAY OF INTERVAL 1 SECOND",
        "s CHANGES FROM VERSION 1",        "s t(device)", "s; SELECT 1", "s |> WHERE true", "s |> EXTEND 1 AS y",
    ],
)  # fmt: skip
def test_a_relation_is_a_topic(hostile: SparkSession, source: str) -> None:
    text = f"SELECT device FROM {source}"
    with pytest.raises(QueryError):
        Job.check(hostile, text, source_of(hostile, text), VALUES)


def test_a_record_is_made_of_the_text_as_it_is_written(hostile: SparkSession) -> None:
    found, _ = selected(hostile, "SELECT '${env:PATH}' AS x FROM s", "s", VALUES)
    (row,) = hostile.range(1).select(found.value.cast("string")).collect()
    assert json.loads(row[0]) == {"x": "${env:PATH}"}


@settings(examples(100, 400), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(["'", '"', "r'", 'R"']), st.lists(st.sampled_from(PARTS), max_size=8).map("".join))
def test_quotes_end_where_they_do_for_spark_and_mean_the_same(hostile: SparkSession, quote: str, inside: str) -> None:
    text = f"{quote}{inside}{quote[-1]}"
    try:
        plan = parsed_by_spark(hostile, f"SELECT {text}")
    except Exception:
        plan = None
    try:
        mine = tokens(text)
    except SyntaxProblem:
        assert plan is None
        return
    if plan is None or any(token.kind != STRING for token in mine):
        return  # two texts with something between them
    literals = [one for one in nodes(next(seq(plan.projectList()))) if kind_of(one) == "Literal"]
    assert [str(one.value().toString()) for one in literals] == ["".join(map(string_value, mine))]
