"""Literals that are not of the type that they are compared with are refused; Spark's own cast decides."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: make setup-all")

from barnabas.streams.query.catalyst import analysed_plan
from barnabas.streams.query.errors import QueryError
from barnabas.streams.query.job import Job
from barnabas.streams.query.literals import Literals
from barnabas.streams.windows.plan import check, parsed
from barnabas.streams.windows.session import streams_session
from barnabas.wire.queries.plan import Values

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = (
    "device STRING, temp DOUBLE, n INT, big BIGINT, at TIMESTAMP, ntz TIMESTAMP_NTZ, d DATE, b BOOLEAN, "
    "dec DECIMAL(10,2), bin BINARY"
)
VALUES = Values(format="json", schema=SCHEMA)
REFUSED = {
    "temp > 'hot'": "'hot' is not a valid DOUBLE",
    "'hot' < temp": "'hot' is not a valid DOUBLE",
    "temp <> 'hot'": "'hot' is not a valid DOUBLE",
    "temp <=> ''": "'' is not a valid DOUBLE",
    "NOT temp = 'hot'": "'hot' is not a valid DOUBLE",
    "n > 1 AND (d IS NULL OR temp = 'hot')": "'hot' is not a valid DOUBLE",
    "CASE WHEN temp > 'hot' THEN true ELSE false END": "'hot' is not a valid DOUBLE",
    "CASE n WHEN 'x' THEN true END": "'x' is not a valid INT",
    "temp + 'x' > 1": "'x' is not a valid DOUBLE",
    "if(n = 'x', 1, 2) = 1": "'x' is not a valid INT",
    "n = 'x'": "'x' is not a valid INT",
    "n > '99999999999'": "'99999999999' is not a valid INT",
    "n BETWEEN '1' AND 'b'": "'b' is not a valid INT",
    "n IN ('x', 1)": "'x' is not a valid INT",
    "n NOT IN ('1', 'x')": "'x' is not a valid INT",
    "n IN ('1.5')": "Spark writes the INT '1.5' as '1'",
    "temp IN ('20')": "Spark writes the DOUBLE '20' as '20.0'",
    "at IN ('2024-01-05')": "'2024-01-05 00:00:00'",
    "at > '2024-13-45'": "'2024-13-45' is not a valid TIMESTAMP",
    "ntz > '2024-13-01'": "'2024-13-01' is not a valid TIMESTAMP_NTZ",
    "d = '2024-02-31'": "'2024-02-31' is not a valid DATE",
    "d BETWEEN '2024-01-01' AND 'soon'": "'soon' is not a valid DATE",
    "b = 'maybe'": "'maybe' is not a valid BOOLEAN",
    "dec > 'abc'": "'abc' is not a valid DOUBLE",
    "equal_null(n, 'x')": "'x' is not a valid INT",
}
TAKEN = [
    "temp > '20.5'", "'20.5' < temp", "temp = 'NaN'", "at > '2024-01-05'", "at > '2024-01-05T10:00:00Z'", "n = '1.5'",
    "n = ' 7 '", "n BETWEEN '1' AND '5'", "n IN ('1', '2')", "n IN (1, 2)", "temp IN ('20.5')", "device IN ('x', 'y')",
    "at IN ('2024-01-05 00:00:00')", "at IN (TIMESTAMP '2024-01-05')", "d = '2024-01-05'", "d > '2024'", "b = 'yes'",
    "dec = '1.234'", "bin = 'abc'", "device > '5'", "device > 5", "n > NULL", "at > 'epoch'",
    "temp > CAST('hot' AS DOUBLE)",
    "temp > try_cast('hot' AS DOUBLE)", "CAST(temp AS STRING) > 'hot'", "CAST(n AS STRING) IN ('x')",
    "device = 'now'", "coalesce(device, 'hot') = 'x'", "n > 3000000000",
]  # fmt: skip
CHANGING = [
    "at > 'now'", "at > TIMESTAMP 'now'", "at > timestamp'Today'", "d = 'yesterday'", "d = DATE \"tomorrow\"",
    "at > CAST('now' AS TIMESTAMP)", "at > to_timestamp('now')", "d > to_date('today')", "at > timestamp('now UTC')",
    "ntz > TIMESTAMP_NTZ 'now'", "at BETWEEN '2024-01-01' AND 'now'",
]  # fmt: skip


@pytest.fixture(scope="module")
def session(spark: SparkSession) -> SparkSession:
    made = spark.newSession()
    made.conf.set("spark.sql.ansi.enabled", "false")
    return made


@pytest.mark.parametrize("condition", REFUSED)
def test_what_never_matches_is_refused_in_a_query(session: SparkSession, condition: str) -> None:
    for text in (f"SELECT device FROM s WHERE {condition}", f"SELECT {condition} AS x FROM s"):
        with pytest.raises(QueryError) as caught:
            Job.check(session, text, "s", VALUES)
        assert REFUSED[condition] in str(caught.value)


@pytest.mark.parametrize("condition", TAKEN)
def test_what_casts_is_taken(session: SparkSession, condition: str) -> None:
    assert Job.check(session, f"SELECT device FROM s WHERE {condition}", "s", VALUES).value_schema == "device string"


@pytest.mark.parametrize("condition", CHANGING)
def test_a_time_that_is_another_one_each_day_is_refused(session: SparkSession, condition: str) -> None:
    with pytest.raises(QueryError, match="is another time each day"):
        Job.check(session, f"SELECT device FROM s WHERE {condition}", "s", VALUES)


@pytest.mark.parametrize(
    "text",
    [
        "PRE_FILTER(temp > 'hot') AS SELECT count(*) AS c FROM s INTERVAL(1s)",
        "SELECT count(*) AS c FROM s WHERE temp > 'hot' INTERVAL(1s)",
        "SELECT max(temp) AS m FROM s INTERVAL(1s) HAVING max(temp) > 'hot'",
        "SELECT max(temp) AS m FROM s INTERVAL(1s) HAVING _wstart > '2024-13-45'",
        "SUBTABLE(if(max(temp) > 'hot', 'a', 'b')) AS SELECT max(temp) AS m FROM s INTERVAL(1s)",
        "SELECT sum(temp + 'hot') AS m FROM s INTERVAL(1s)",
        "SELECT count(*) AS c FROM s PARTITION BY (temp > 'hot') AS hot INTERVAL(1s)",
        "SELECT count(*) AS c FROM s EVENT_WINDOW(START WITH temp > 'hot' END WITH temp < 1)",
        "SELECT count(*) AS c FROM s STATE_WINDOW(temp > 'hot')",
        "SELECT count(*) AS c FROM s JOIN o ON s.device = o._key WHERE o.temp > 'hot' INTERVAL(1s)",
    ],
)
def test_what_never_matches_is_refused_in_a_stream(spark: SparkSession, text: str) -> None:
    joined = VALUES if " JOIN " in text else None
    with pytest.raises(QueryError, match=r"'hot' is not a valid DOUBLE|'2024-13-45' is not a valid TIMESTAMP"):
        check(streams_session(spark), *parsed(text), VALUES, joined)


def test_what_never_matches_is_refused_in_a_select(session: SparkSession) -> None:
    session.createDataFrame([], SCHEMA).createOrReplaceTempView("s")
    for text in (
        "SELECT max(temp) FROM s GROUP BY device HAVING max(temp) > 'hot'",
        "SELECT * FROM s a JOIN s b ON a.n = b.n AND a.temp > 'hot'",
        "SELECT * FROM s WHERE n IN (SELECT n FROM s WHERE temp > 'hot')",
        "WITH t AS (SELECT * FROM s WHERE temp > 'hot') SELECT count(*) FROM t",
        "SELECT sum(n) OVER (PARTITION BY temp > 'hot') FROM s",
    ):
        with pytest.raises(QueryError, match="'hot' is not a valid DOUBLE"):
            Literals(session).check_plan(analysed_plan(session.sql(text)))
    taken = analysed_plan(session.sql("SELECT * FROM s WHERE temp > '20.5' AND at < 'now' ORDER BY 1"))
    Literals(session).check_plan(taken)
