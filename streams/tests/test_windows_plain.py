"""The result columns of a plain stream are found without Spark, and they are those that Spark finds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyspark", reason="pyspark is not installed: make setup-all")

from barnabas.streams.query.errors import QueryError
from barnabas.streams.windows import plain
from barnabas.streams.windows.plan import check, parsed
from barnabas.streams.windows.session import streams_session
from barnabas.wire.queries.plan import Values
from barnabas.wire.tests.strategies import examples

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = (
    "device STRING, temp DOUBLE, f FLOAT, n BIGINT, i INT, small SMALLINT, tiny TINYINT, flag BOOLEAN, at TIMESTAMP, "
    "day DATE, price DECIMAL(9,2), tags ARRAY<STRING>, data BINARY, `Odd one` STRING"
)
VALUES = Values(format="json", schema=SCHEMA)
RAW = Values(format="raw")


def known(text: str, values: Values = VALUES) -> plain.Given | None:
    return plain.given(*parsed(text), values)


def by_spark(spark: SparkSession, text: str, values: Values = VALUES) -> plain.Given:
    found = check(streams_session(spark), *parsed(text), values)
    return plain.Given(found.value_format, found.value_schema)


PLAIN = [
    "SELECT _wend, device, avg(temp) AS t FROM s WHERE temp > 0 PARTITION BY device INTERVAL(10s) HAVING avg(temp) > 5",
    "SELECT count(*) FROM s INTERVAL(10s) SLIDING(5s)",
    "SELECT count(*) c, count(tags) d FROM s INTERVAL(10s)",
    "SELECT _wstart, _wend, _wduration, sum(i) AS a, sum(f) AS b, sum(n), sum(temp) AS d FROM s SESSION(5s)",
    "SELECT device, n, min(device) a, max(at) b, first(tiny) c, last(f) d, spread(i) e FROM s PARTITION BY n, device "
    "INTERVAL(1m)",
    "WATERMARK 5s EVENT_TIME at SELECT Device, max(Temp) AS t FROM s PARTITION BY device INTERVAL(10s)",
    "SELECT `Odd one`, count(*) AS c FROM s PARTITION BY `Odd one` INTERVAL(10s)",
    "SELECT _wend, count(*) AS c FROM s PERIOD(10s)",
    "TAGS(device AS d) SELECT count(*) AS c FROM s PARTITION BY device INTERVAL(10s)",
    "PRE_FILTER(flag) SELECT flag, count(*) AS c FROM s WHERE n IN (1, 2) PARTITION BY flag INTERVAL(10s) "
    "HAVING count(*) > 1",
    "IGNORE EXPIRED 0 SELECT _wend, count(*) AS c FROM s INTERVAL(10s)",
    "SELECT p, max(_offset) AS o FROM s PARTITION BY _partition AS p INTERVAL(10s)",
]


@pytest.mark.parametrize("text", PLAIN)
def test_a_plain_stream_is_known(spark: SparkSession, text: str) -> None:
    found = known(text)
    assert found is not None
    assert found == by_spark(spark, text)


def test_a_topic_without_a_schema_has_the_parts_of_its_records(spark: SparkSession) -> None:
    text = "SELECT _key, count(*) AS c, max(_value) AS v FROM s PARTITION BY _key INTERVAL(10s)"
    text = text.replace("SELECT _key", "SELECT k").replace("BY _key", "BY _key AS k")
    assert known(text, RAW) == by_spark(spark, text, RAW)
    assert known(text.replace("_key", "x"), RAW) is None


@pytest.mark.parametrize(
    "text",
    [
        "SELECT avg(temp * 2) AS t FROM s INTERVAL(10s)",
        "SELECT 2 * avg(temp) AS t FROM s INTERVAL(10s)",
        "SELECT stddev(temp) AS t FROM s INTERVAL(10s)",
        "SELECT sum(price) AS t FROM s INTERVAL(10s)",
        "SELECT sum(device) AS t FROM s INTERVAL(10s)",
        "SELECT min(flag) AS t FROM s INTERVAL(10s)",
        "SELECT count(nothing) AS t FROM s INTERVAL(10s)",
        "SELECT count(_value) AS t FROM s INTERVAL(10s)",
        "SELECT temp, count(*) AS c FROM s PARTITION BY temp INTERVAL(10s)",
        "SELECT u, count(*) AS c FROM s PARTITION BY upper(device) AS u INTERVAL(10s)",
        "SELECT device, count(*) AS c FROM s INTERVAL(10s)",
        "SELECT count(*) AS c FROM s WHERE temp * 2 > 1 INTERVAL(10s)",
        "SELECT count(*) AS c FROM s WHERE at > '2024-01-01' INTERVAL(10s)",
        "SELECT count(*) AS c FROM s INTERVAL(10s) HAVING c > avg(temp)",
        "SELECT count(*) AS c, max(n) AS c FROM s INTERVAL(10s)",
        "SELECT count(*) AS c FROM s INTERVAL(10s) FILL(NULL)",
        "SELECT count(*) AS c FROM s COUNT_WINDOW(10)",
        "SELECT count(*) AS c FROM s STATE_WINDOW(n)",
        "EVENT_TIME day SELECT count(*) AS c FROM s INTERVAL(10s)",
        "EVENT_TIME device SELECT count(*) AS c FROM s INTERVAL(10s)",
        "SUBTABLE(device) SELECT device, count(*) AS c FROM s PARTITION BY device INTERVAL(10s)",
        "SELECT device AS _value, count(*) AS c FROM s PARTITION BY device INTERVAL(10s)",
        "SELECT _wend AS _timestamp, count(*) AS c FROM s INTERVAL(10s)",
    ],
)
def test_what_is_not_plain_is_asked_of_spark(text: str) -> None:
    assert known(text) is None


NAMES = st.sampled_from(
    ["device", "temp", "f", "n", "i", "small", "tiny", "flag", "at", "day", "price", "tags", "data", "`Odd one`",
     "TEMP", "_offset", "_key", "_value", "nothing", "temp + 1"]
)  # fmt: skip
FUNCTIONS = st.sampled_from(["count", "sum", "avg", "mean", "min", "max", "first", "last", "spread", "stddev", "mode"])
ITEMS = st.one_of(
    st.sampled_from(["_wstart", "_wend", "_wduration", "device", "n", "count(*)"]),
    st.builds("{}({})".format, FUNCTIONS, NAMES),
)
CONDITIONS = st.sampled_from(
    ["", "WHERE temp > 1", "WHERE n = 2 AND flag", "WHERE device LIKE 'a%'", "WHERE day > '2024-01-01'",
     "WHERE i > 1.5", "WHERE nothing = 1", "WHERE small IN (1, 70000)", "WHERE upper(device) = 'A'"]
)  # fmt: skip
HAVING = st.sampled_from(
    ["", "HAVING count(*) > 1", "HAVING device = 'a'", "HAVING max(temp) IS NULL", "HAVING _wduration > 1"]
)
WINDOWS = st.sampled_from(["INTERVAL(10s)", "INTERVAL(10s) SLIDING(5s)", "SESSION(3s)", "PERIOD(5s)"])
KEYS = st.lists(st.sampled_from(["device", "n", "flag", "temp", "at", "price"]), max_size=3, unique=True)
OPTIONS = st.sampled_from(["", "EVENT_TIME at", "EVENT_TIME n", "WATERMARK 1s"])


@pytest.mark.long
@given(st.lists(ITEMS, min_size=1, max_size=4), CONDITIONS, KEYS, WINDOWS, HAVING, OPTIONS)
@examples(50, 1500)
def test_what_is_known_is_what_spark_says(
    spark: SparkSession, items: list[str], condition: str, keys: list[str], window: str, having: str, option: str
) -> None:
    chosen = ", ".join(f"{item} AS x{number}" for number, item in enumerate(items))
    partition = f"PARTITION BY {', '.join(keys)}" if keys else ""
    text = f"{option} SELECT {chosen} FROM s {condition} {partition} {window} {having}"
    try:
        found = known(text)
    except QueryError:  # an error in the clauses, whoever analyses them
        return
    if found is not None:
        assert found == by_spark(spark, text), text
