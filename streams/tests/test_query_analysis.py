"""SELECTs of query topics: the refused ones with their remedies, and the results of the allowed ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from barnabas.streams.tests.support import NOW, Logs

pytest.importorskip("pyspark", reason="pyspark is not installed: make setup-all")

from barnabas.streams.query.analysis import source_of
from barnabas.streams.query.errors import QueryError
from barnabas.streams.query.job import Job, begin
from barnabas.streams.query.sink import MALFORMED, MARK, ROW
from barnabas.streams.query.tick import Tick
from barnabas.streams.source.where import Condition
from barnabas.streams.tests.query_support import group_of, parts_of
from barnabas.wire.queries.plan import Values

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = "device STRING, temp DOUBLE, tags ARRAY<STRING>"


@pytest.fixture(scope="module")
def session(spark: SparkSession) -> SparkSession:
    made = spark.newSession()
    made.conf.set("spark.sql.ansi.enabled", "false")
    return made


def check(spark: SparkSession, query: str, schema: str = SCHEMA, kind: str = "json") -> Any:
    return Job.check(spark, query, source_of(spark, query), Values(format=kind, schema=schema))


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ("SELECT device FORM s", "PARSE_SYNTAX_ERROR"),
        ("SELECT devise FROM s", "there is no column `devise`: a record of this topic has device, "),
        ("SELECT device FROM s WHERE NOT _end", "there is no column `_end`"),
        ("SELECT nosuch(device) FROM s", "there is no function nosuch"),
        ("SELECT count(*) FROM s", "stream"),
        ("SELECT device, max(temp) t FROM s GROUP BY device", "stream"),
        ("SELECT DISTINCT device FROM s", "stream"),
        ("SELECT row_number() OVER (ORDER BY temp) r FROM s", "window functions"),
        ("SELECT device FROM s ORDER BY temp", "ORDER BY"),
        ("SELECT device FROM s LIMIT 3", "LIMIT"),
        ("SELECT a.device FROM s a JOIN s b ON a.device = b.device", "reads one topic"),
        ("SELECT device FROM s UNION ALL SELECT device FROM s", "reads one topic"),
        ("SELECT explode(tags) t FROM s", "at most one"),
        ("SELECT device FROM s WHERE temp > (SELECT 1)", "subqueries"),
        ("SELECT device FROM s WHERE device IN (SELECT device FROM t)", "subqueries"),
        ("WITH a AS (SELECT * FROM s) SELECT * FROM a", "WITH"),
        ("SELECT t FROM (SELECT temp t FROM s)", "one SELECT"),
        ("SELECT device FROM my.topic", "`my.topic`"),
        ("SELECT device, temp AS device FROM s", "two columns"),
        ("SELECT _key FROM s", "selects no value"),
        ("SELECT _value, device FROM s", "not both"),
        ("SELECT temp AS _key, device FROM s", "_key must be a string or binary"),
        ("SELECT device AS _timestamp, temp FROM s", "_timestamp must be a timestamp"),
        ("SELECT _end FROM s", "cannot be selected"),
        ("SELECT 1", "reads no topic"),
        ("SELECT temp FROM s WITH ('barnabas.query.start'='latest')", "settings of a query topic stand before"),
        ("DROP TABLE s", "DropTable is not possible"),
    ],
)
def test_what_cannot_be_is_refused_with_the_remedy(session: SparkSession, query: str, told: str) -> None:
    with pytest.raises(QueryError) as caught:
        check(session, query)
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("schema", ["device STRNG", "device", "_key STRING", "device STRING, x INTERVAL DAY"])
def test_a_schema_that_does_not_do_is_refused(session: SparkSession, schema: str) -> None:
    with pytest.raises(QueryError):
        check(session, "SELECT device FROM s", schema)


@pytest.mark.parametrize(
    ("query", "kind", "schema"),
    [
        ("SELECT * FROM s", "json", "device string, temp double, tags array<string>"),
        (
            "SELECT s.*, temp * 2 AS twice FROM s",
            "json",
            "device string, temp double, tags array<string>, twice double",
        ),
        ("SELECT upper(device) `a b`, size(tags) n FROM `s` x WHERE x.temp > 1", "json", "`a b` string, n int"),
        ("SELECT _value FROM s WHERE temp > 1", "raw", ""),
        ("SELECT device AS _key, _offset, _partition p FROM s", "json", "_offset bigint, p int"),
    ],
)
def test_what_comes_out_is_known_beforehand(session: SparkSession, query: str, kind: str, schema: str) -> None:
    found = check(session, query)
    assert (found.value_format, found.value_schema) == (kind, schema)


def test_a_topic_without_a_schema_has_the_whole_value(session: SparkSession) -> None:
    assert check(session, "SELECT * FROM s WHERE _key = 'a'", "", "raw").value_format == "raw"
    assert check(session, "SELECT get_json_object(_value, '$.a') a FROM s", "", "raw").value_schema == "a string"


def results(spark: SparkSession, logs: Logs, *queries: str, schema: str = SCHEMA) -> list[Any]:
    """The rows that a job passes to its sink, partition by partition."""
    parts = parts_of(logs, len(queries))
    group, _ = group_of(spark, queries, schema, len(parts))
    rows = group.rows()
    begin(spark, Tick(1, parts))
    return rows.collect()


@pytest.fixture
def logs(tmp_path: Path) -> Logs:
    made = Logs(tmp_path / "data")
    for partition in range(2):
        values = [
            json.dumps({"device": f"d{n % 3}", "temp": n + partition / 2, "tags": ["x"] * (n % 2)}) for n in range(20)
        ]
        made.write([value.encode() for value in values], "s", partition)
    return made


def test_all_queries_get_every_record_in_order_and_then_the_mark(session: SparkSession, logs: Logs) -> None:
    logs.write([b'{"device": 7}', None, b'{"device": "z", "temp": 99}'], "s", 1)
    rows = results(
        session,
        logs,
        "SELECT device, temp FROM s WHERE temp >= 10",
        "SELECT device AS _key, _value FROM s WHERE size(tags) = 0 OR temp IS NULL",
        "SELECT _offset FROM s WHERE _partition = 1",
    )
    for partition in range(2):
        mine = [row for row in rows if row["_partition"] == partition]
        assert (mine[-1]["kind"], mine[-1]["offset"]) == (MARK, 23 if partition else 20)
        assert [row["offset"] for row in mine] == sorted(row["offset"] for row in mine)
        first = [row for row in mine if row["query"] == 0]
        expected = [*range(10, 20), *([22] if partition else [])]
        assert [row["offset"] for row in first] == expected
        assert json.loads(first[0]["value"]) == {"device": "d1", "temp": 10 + partition / 2}
        assert bytes(first[0]["key"]) == b"k"
        assert first[0]["timestamp"].timestamp() * 1000 == NOW + 10
        second = {row["offset"]: row for row in mine if row["query"] == 1}
        assert set(second) == {*range(0, 20, 2), *([21] if partition else [])}
        assert bytes(second[4]["key"]) == b"d1"
        third = [row["offset"] for row in mine if row["query"] == 2]
        assert third == (list(range(23)) if partition else []), "a query without typed columns reads what is malformed"
    (bad,) = [row for row in rows if row["kind"] == MALFORMED]
    assert (bad["offset"], bytes(bad["value"]), bad["query"]) == (20, b'{"device": 7}', -1)
    assert bad["reason"]
    assert {row["kind"] for row in rows} == {ROW, MALFORMED, MARK}


def test_a_single_query_gives_the_same(session: SparkSession, logs: Logs) -> None:
    logs.write([b"nothing"], "s", 0)
    rows = results(session, logs, "SELECT device FROM s WHERE temp IS NULL OR temp < 2")
    assert sorted((row["kind"], row["_partition"], row["offset"]) for row in rows) == [
        (ROW, 0, 0),
        (ROW, 0, 1),
        (ROW, 1, 0),
        (ROW, 1, 1),
        (MALFORMED, 0, 20),
        (MARK, 0, 21),
        (MARK, 1, 20),
    ]


def test_columns_may_be_written_in_any_case(session: SparkSession, logs: Logs) -> None:
    rows = results(session, logs, "SELECT Device, length(DEVICE) AS n FROM s WHERE TEMP >= 19 AND _PARTITION = 0")
    assert [json.loads(row["value"]) for row in rows if row["kind"] == ROW] == [{"Device": "d1", "n": 2}]


@pytest.mark.parametrize(
    ("condition", "least"),
    [
        ("temp > 80", (Condition("IsNotNull", "temp"), Condition("GreaterThan", "temp", 80.0))),
        ("device LIKE 'd%' AND size(tags) = 0",
         (Condition("IsNotNull", "device"), Condition("StringStartsWith", "device", "d"))),
        ("device IN ('a', 'b') AND _offset < 7",
         (Condition("IsNotNull", "_offset"), Condition("In", "device", ("a", "b")),
          Condition("LessThan", "_offset", 7))),
        ("temp IS NULL OR NOT temp > 5",
         (Condition("Or", parts=(Condition("IsNull", "temp"), Condition("LessThanOrEqual", "temp", 5.0))),)),
        ("Device <> 'a'", (Condition("IsNotNull", "device"),
                           Condition("Not", parts=(Condition("EqualTo", "device", "a"),)))),
        ("upper(device) = 'A'", (Condition("IsNotNull", "device"),)),
        ("length(device) < 2", (Condition("IsNotNull", "device"),)),
    ],
)  # fmt: skip
def test_the_scan_is_told_what_a_row_must_meet_at_least(
    session: SparkSession, condition: str, least: tuple[Condition, ...]
) -> None:
    """Also if a result has the name of a column."""
    found = check(session, f"SELECT device, temp * 2 AS temp FROM s WHERE {condition}").least
    assert sorted(found, key=str) == sorted(least, key=str)


def test_functions_that_the_operator_registers_can_be_used(session: SparkSession, logs: Logs) -> None:
    from pyspark.sql.types import DoubleType

    session.udf.register("fahrenheit", lambda celsius: None if celsius is None else celsius * 9 / 5 + 32, DoubleType())
    rows = results(session, logs, "SELECT fahrenheit(temp) f FROM s WHERE fahrenheit(temp) > 64")
    found = [json.loads(row["value"])["f"] for row in rows if row["kind"] == ROW and row["_partition"] == 0]
    assert found == [n * 9 / 5 + 32 for n in range(18, 20)]


def test_times_keep_their_microseconds(session: SparkSession, tmp_path: Path) -> None:
    logs, times = Logs(tmp_path / "data"), ["2024-02-29T23:59:59.050001", "2024-01-01T00:00:00"]
    logs.write([json.dumps({"at": f"{one}Z", "ntz": one}).encode() for one in times], "s", 0)
    query = "SELECT at, ntz, struct(at) AS s, array(ntz) AS a, TIMESTAMP '1969-12-31 23:59:59.999999' AS c FROM s"
    parts = parts_of(logs, 1)
    group, _ = group_of(session, [query], "at TIMESTAMP, ntz TIMESTAMP_NTZ", len(parts))
    begin(session, Tick(1, parts))
    written = [json.loads(row["value"]) for row in group.rows().collect() if row["kind"] == ROW]
    for one, shown in zip(written, [times[0], f"{times[1]}.000000"], strict=True):
        assert one == {
            "at": f"{shown}Z", "ntz": shown, "s": {"at": f"{shown}Z"}, "a": [shown],
            "c": "1969-12-31T23:59:59.999999Z",
        }  # fmt: skip
