"""Queries that are analysed without Spark get Spark's analysis, and all others are left to Spark."""

from __future__ import annotations

import json
import random
import re
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

from barnabas.streams.tests.support import Logs
from barnabas.wire.tests.strategies import examples

pytest.importorskip("pyspark", reason="pyspark is not installed: make setup-all")

from barnabas.streams.query import direct, plain
from barnabas.streams.query.analysis import over_pattern, source_of
from barnabas.streams.query.catalyst import parsed
from barnabas.streams.query.errors import QueryError
from barnabas.streams.query.facts import Facts
from barnabas.streams.query.job import Group, Job
from barnabas.streams.query.parts import arrow_rows
from barnabas.streams.query.sink import ROW
from barnabas.streams.query.source_rows import arrow_schema, row_schema, value_columns
from barnabas.streams.schema import parse_ddl
from barnabas.streams.tests.query_support import definition, parts_of
from barnabas.streams.tests.test_query_simple import by_spark, in_worker
from barnabas.wire.queries.plan import Values

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = "device STRING, seq BIGINT, temp DOUBLE, small TINYINT, n INT, flag BOOLEAN, `my-col` STRING, `Key` SMALLINT"
MORE = SCHEMA + ", day DATE, at TIMESTAMP, f FLOAT, dec DECIMAL(10,2), tags ARRAY<STRING>, pos STRUCT<x: DOUBLE>"
JSON, RAW = Values(format="json", schema=SCHEMA), Values()


@pytest.fixture(scope="module")
def session(spark: SparkSession) -> SparkSession:
    made = spark.newSession()
    made.conf.set("spark.sql.ansi.enabled", "false")
    return made


def by_both(spark: SparkSession, query: str, values: Values) -> tuple[Facts | str | None, Facts | str | None]:
    """What is known about a query here and with Spark: facts, an error's text, or nothing."""

    def said(ask: Any) -> Facts | str | None:
        try:
            found: Facts | None = ask()
        except QueryError as error:
            return str(error)
        return found

    text, _ = over_pattern(query)
    asked = plain.parse(text)
    mine = None if asked is None else said(lambda: plain.facts(text, asked.source, values))
    if mine is None:
        return None, None
    assert asked is not None
    assert source_of(spark, text) == asked.source
    return mine, said(lambda: Job.check(spark, text, asked.source, values))


def comparable(facts: Facts | str | None) -> Any:
    """Everything except the conditions, which Spark rearranges, and on which its idea of a simple query depends."""
    return facts if not isinstance(facts, Facts) else facts._replace(least=(), simple=None)


# --- what is known here -----------------------------------------------------------------------------------------------

KNOWN = [
    "SELECT * FROM s", "SELECT * FROM `s` WHERE temp > 20", "select device from s", "SELECT device, temp FROM s t",
    "SELECT t.device AS d, S FROM s AS t", "SELECT s.device FROM s WHERE S.TEMP >= 20.5 AND not (flag or small = -2)",
    "SELECT DEVICE, Temp x FROM s WHERE 20 < temp", "SELECT _key AS k, _value AS v, _offset, _partition, _topic FROM s",
    "SELECT device AS _key, temp FROM s", "SELECT _value FROM s WHERE _offset >= 3", "SELECT device AS _value FROM s",
    "SELECT device FROM s WHERE device LIKE 'a%' OR device NOT LIKE '%b' OR device LIKE '%c%' OR device LIKE 'd'",
    "SELECT device FROM s WHERE device IN ('a', 'it''s') AND seq NOT IN (1, -2) AND seq BETWEEN -5 AND 5",
    "SELECT device FROM s WHERE temp NOT BETWEEN 1 AND 1.5e3 AND flag = TRUE AND flag <> false AND NOT flag",
    "SELECT `my-col`, Key FROM s WHERE `MY-COL` = \"x\" -- a comment", "SELECT device FROM s WHERE temp IS NOT NULL",
    "SELECT device FROM topics('plant-.*') WHERE seq == 7 AND device != r'\\d'",
    "SELECT nothing FROM s", "SELECT device FROM s WHERE current_user = 'x' OR zzz = 1",
]  # fmt: skip
#: Each is one step away from what is understood.
UNKNOWN = [
    "SELECT temp * 2 AS t FROM s", "SELECT upper(device) AS d FROM s", "SELECT 'a' AS a FROM s", "SELECT 1 FROM s",
    "SELECT device FROM s WHERE temp > '20'", "SELECT device FROM s WHERE seq > 1.5", "SELECT device FROM s LIMIT 3",
    "SELECT device FROM s WHERE small > 200", "SELECT _key FROM s", "SELECT * FROM s WHERE seq = 9223372036854775808",
    "SELECT device FROM s WHERE temp > 9007199254740993", "SELECT device FROM s WHERE temp = -0.0",
    "SELECT device FROM s WHERE device > 5", "SELECT device FROM s WHERE device = NULL", "SELECT DISTINCT seq FROM s",
    "SELECT device FROM s WHERE device LIKE 'a_'", "SELECT device FROM s WHERE device LIKE '%'",
    "SELECT device FROM s WHERE device LIKE 'a%b'", "SELECT device FROM s WHERE device LIKE 'a\\\\%'",
    "SELECT device FROM s WHERE device LIKE 'a!%' ESCAPE '!'", "SELECT device FROM s WHERE device LIKE '%%a'",
    "SELECT device FROM s WHERE temp IN (1, 2)", "SELECT device FROM s WHERE seq IN (1, NULL)",
    "SELECT device FROM s WHERE seq = temp", "SELECT device FROM s WHERE temp", "SELECT device FROM s WHERE true",
    "SELECT device FROM s WHERE flag > false", "SELECT device FROM s WHERE seq = 1 = true",
    "SELECT device, device FROM s", "SELECT device, _value FROM s", "SELECT seq AS _key, temp FROM s",
    "SELECT device AS _timestamp, temp FROM s", "SELECT x.device FROM s t", "SELECT s.device FROM s t",
    "SELECT _timestamp AS at, device FROM s", "SELECT _headers, device FROM s", "SELECT _unreadable FROM s",
    "SELECT device FROM s WHERE _timestamp > '2024-01-01'", "SELECT device FROM s WHERE seq = 1L", "SELECT FROM s",
    "SELECT device FROM a.s", "SELECT device FROM s WHERE /* a */ flag", "SELECT device FROM s WHERE seq = 'a' 'b'",
    "SELECT device FROM s WHERE temp > 1e400", "SELECT device FROM s ORDER BY seq", "SELECT device FROM s, t",
    "SELECT device FROM s WHERE flag IS TRUE", "SELECT device FROM s WHERE (seq, small) IN ((1, 2))", "", "SELECT",
    "SELECT device FROM s WHERE", "SELECT device AS FROM s", "SELECT device FROM s; SELECT 1", "SELECT (device) FROM s",
]  # fmt: skip


@pytest.mark.parametrize("query", KNOWN)
def test_what_is_known_here_is_what_spark_says(session: SparkSession, query: str) -> None:
    mine, theirs = by_both(session, query, JSON)
    assert mine is not None
    assert comparable(mine) == comparable(theirs)


@pytest.mark.parametrize("query", UNKNOWN)
def test_all_else_is_left_to_spark(query: str) -> None:
    asked = plain.parse(query)
    assert asked is None or plain.facts(query, asked.source, JSON) is None


@pytest.mark.parametrize(
    "schema",
    ["day DATE", "a ARRAY<STRING>", "a STRUCT<b: INT>", "a CHAR(3)", "a INT COMMENT 'x'", "a INT, A INT", "`a.b` INT",
     "_key STRING", "1a INT", "\u0130 STRING", "a INTERVAL", "STRING", "a STRING COLLATE UNICODE_CI", "a"],
)  # fmt: skip
def test_schemas_whose_columns_it_does_not_know_are_left_to_spark(schema: str) -> None:
    assert plain.facts("SELECT * FROM s", "s", Values(format="json", schema=schema)) is None


def test_a_long_or_deep_query_is_left_to_spark() -> None:
    for text in ("(" * 25 + "flag" + ")" * 25, "NOT " * 25 + "flag", " OR ".join(["flag"] * 300)):
        assert plain.parse(f"SELECT * FROM s WHERE {text}") is None


def test_a_topic_without_a_schema_has_its_parts(session: SparkSession) -> None:
    for query in (
        "SELECT * FROM s",
        "SELECT _value FROM s WHERE _key = 'k'",
        "SELECT _key AS k FROM s",
        "SELECT a FROM s",
    ):
        mine, theirs = by_both(session, query, RAW)
        assert mine is not None
        assert comparable(mine) == comparable(theirs)


def test_the_columns_are_those_that_spark_has(session: SparkSession) -> None:
    values = value_columns(Values(format="json", schema=MORE))
    assert parse_ddl(MORE) == arrow_schema(values)
    for names in (None, {"device", "_key"}, set[str]()):
        schema = row_schema(values, names)
        assert arrow_rows(parse_ddl(MORE), schema.names) == arrow_schema(schema)


# --- words ------------------------------------------------------------------------------------------------------------

FORMS = [
    "SELECT {} FROM s", "SELECT {}, b FROM s", "SELECT b, {} FROM s", "SELECT b AS {} FROM s", "SELECT b {} FROM s",
    "SELECT b {}, c FROM s", "SELECT {} AS d FROM s", "SELECT {} d FROM s", "SELECT b FROM s WHERE {} > 1",
    "SELECT b FROM s WHERE {}", "SELECT b FROM s WHERE NOT {}", "SELECT b FROM s WHERE {} IS NULL",
    "SELECT b FROM s WHERE {} IN (1, 2)", "SELECT b FROM s WHERE {} NOT IN (1, 2)",
    "SELECT b FROM s WHERE {} BETWEEN 1 AND 2", "SELECT b FROM s WHERE {} LIKE 'a%'", "SELECT b FROM s WHERE 1 < {}",
    "SELECT b FROM s WHERE (({} = 1) OR {}) AND {} = -1", "SELECT b FROM s WHERE {} = 'x' AND NOT {} = true",
    "SELECT b FROM s {}", "SELECT b FROM s AS {}", "SELECT b FROM s {} WHERE c > 1", "SELECT b FROM {}",
    "SELECT b FROM {} WHERE c > 1", "SELECT b FROM {} AS t", "SELECT b FROM {} t", "SELECT {}.b FROM s AS {}",
    "SELECT {}.b FROM s {} WHERE {}.c > 1 AND NOT {}.d", "SELECT t.{} FROM s t WHERE t.{} = 1",
    "SELECT {}, {} {} FROM {} {}",
]  # fmt: skip


@pytest.mark.parametrize("part", [0, *(pytest.param(n, marks=pytest.mark.long) for n in range(1, 40))])
def test_a_word_means_to_spark_what_it_means_in_backquotes(session: SparkSession, part: int) -> None:
    """This holds for each of Spark's words: other words are not accepted as names here."""
    words = [row[0] for row in session.sql("SELECT keyword FROM sql_keywords() ORDER BY keyword").collect()]
    assert len(words) > 400

    def meant(text: str) -> str:
        return re.sub(r"#\d+", "", str(parsed(session, text).toString()))

    for word in [word for word in words[part::40] if word not in plain.WORDS]:
        for form in FORMS:
            bare, quoted = (form.replace("{}", name) for name in (word, f"`{word}`"))
            assert plain.parse(bare) == plain.parse(quoted) is not None, bare
            assert meant(bare) == meant(quoted), bare
        assert value_columns(Values(format="json", schema=f"{word} INT")).names == [word]


# --- rows -------------------------------------------------------------------------------------------------------------

VALUES: dict[str, list[Any]] = {
    "device": [None, "", "a", "ab", "b", "A", "it's", "d'\"\\", "\u00e9\U0001f600", "\x01\n", "%", "a_b"],
    "seq": [None, 0, 1, -1, 7, 2**31, -(2**63), 2**63 - 1, 2**53 + 1],
    "temp": [None, 0.0, -0.0, 1.5, -1.5, 20.5, 1e-4, 1e7, 1e300, 0.1 + 0.2, 80],
    "small": [None, 0, 1, -2, 127, -128],
    "n": [None, 0, 5, -(2**31), 2**31 - 1],
    "flag": [None, True, False],
    "my-col": [None, "x", ""],
    "Key": [None, 3, -32768],
}
LITERALS: dict[str, list[str]] = {
    "device": ["''", "'a'", "'ab'", "\"b\"", "'it''s'", "'d\\'\"\\\\\\\\'", "'\u00e9\U0001f600'", "'\\n'", "r'\\n'"],
    "seq": ["0", "1", "-1", "7", "2147483648", "-9223372036854775807", "9223372036854775807", "- 5"],
    "temp": ["0", "-1", "1.5", "20.50", "1e7", "1.0E-4", "0.30000000000000004", "80", "9007199254740992", "0.0"],
    "small": ["0", "1", "-2", "127", "-128"],
    "n": ["0", "5", "-2147483648", "2147483647"],
    "flag": ["true", "FALSE"],
    "my-col": ["'x'", "''"],
    "Key": ["3", "-32768", "0"],
    "_offset": ["3", "0", "100"],
    "_partition": ["0", "1"],
    "_topic": ["'s'", "'t'"],
    "_key": ["'k'"],
}  # fmt: skip
PATTERNS = ["'a%'", "'%b'", "'%a%'", "'a'", "'%\u00e9%'", "'it''s%'", "'A%'"]


class Writer:
    """Writes queries, some of which are beyond what is understood here."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def query(self) -> str:
        where = f" WHERE {self.condition(3)}" if self.random.random() < 0.9 else ""
        alias = self.random.choice(["", "", " t", " AS t"])
        return f"SELECT {self.columns(alias)} FROM s{alias}{where}"

    def columns(self, alias: str) -> str:
        if self.random.random() < 0.1:
            return "*"
        names = self.random.sample([*VALUES, "_offset", "_partition", "_topic"], self.random.randint(1, 4))
        chosen = [self.name(name) for name in names]
        if alias and self.random.random() < 0.5:
            chosen[0] = "t." + chosen[0]
        renamed = [f"{one}{self.random.choice(['', '', f' AS c{n}', f' `c {n}`'])}" for n, one in enumerate(chosen)]
        more = self.random.choice([[], [], [], ["device AS _key"], ["_timestamp"], ["_key AS k"], ["_value AS v"]])
        return ", ".join([*renamed, *more])

    def name(self, name: str) -> str:
        changed = self.random.choice([name, name, name.upper(), name.lower()])
        return f"`{changed}`" if "-" in name or self.random.random() < 0.2 else changed

    def condition(self, depth: int) -> str:
        kind = self.random.random()
        if depth and kind < 0.3:
            word = self.random.choice(["AND", "OR", "and"])
            return f"{self.condition(depth - 1)} {word} {self.condition(depth - 1)}"
        if depth and kind < 0.4:
            return f"NOT {self.condition(depth - 1)}"
        if depth and kind < 0.5:
            return f"({self.condition(depth - 1)})"
        return self.test(self.random.choice(list(LITERALS)))

    def test(self, column: str) -> str:
        name, no = self.name(column), self.random.choice(["", "NOT "])
        one, two = (self.random.choice(LITERALS[column]) for _ in range(2))
        if column == "flag":
            return self.random.choice([name, f"{name} = {one}", f"{name} <> {one}", f"{name} IS {no}NULL"])
        sign = self.random.choice(["=", "<", ">", "<=", ">=", "<>", "!=", "=="])
        tests = [
            f"{name} {sign} {one}",
            f"{one} {sign} {name}",
            f"{name} {no}BETWEEN {one} AND {two}",
            f"{name} IS {no}NULL",
        ]
        if column not in ("temp",):
            tests.append(f"{name} {no}IN ({one}, {two})")
        if column in ("device", "my-col", "_topic"):
            tests.append(f"{name} {no}LIKE {self.random.choice(PATTERNS)}")
        return self.random.choice(tests)


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Logs:
    made = Logs(tmp_path_factory.mktemp("plain") / "data")
    chosen = random.Random(5)
    for partition in range(2):
        rows = [{name: chosen.choice(values) for name, values in VALUES.items()} for _ in range(150)]
        made.write([json.dumps(row, ensure_ascii=partition == 0).encode() for row in rows], "s", partition)
    return made


@pytest.mark.parametrize("seed", [1, *(pytest.param(n, marks=pytest.mark.long) for n in range(2, 8))])
def test_the_rows_are_those_of_spark(
    session: SparkSession, logs: Logs, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Generated queries: the facts of each, and the results of all of them in one job."""
    writer = Writer(seed)
    texts, found = list[str](), list[Facts]()
    while len(texts) < 20:
        text = writer.query()
        mine, theirs = by_both(session, text, JSON)
        assert comparable(mine) == comparable(theirs), text
        if isinstance(mine, Facts):
            texts.append(text)
            found.append(mine)
    definitions = [definition(f"q{number}", text, SCHEMA) for number, text in enumerate(texts)]
    parts = parts_of(logs, len(texts))
    queries = [one.simple for one in found if one.simple is not None]
    without = in_worker(direct.direct_of("", definitions, found, queries), parts, monkeypatch)
    checked = [Job.check(session, text, "s", JSON) for text in texts]
    with_spark = by_spark(session, Group(session, definitions, checked, len(parts)), parts)
    for number, text in enumerate(texts):
        here, there = ([row for row in rows if row[:2] == (ROW, number)] for rows in (without, with_spark))
        assert here == there, text
    assert any(row[0] == ROW for row in with_spark)


# --- any text ---------------------------------------------------------------------------------------------------------

SOUP = [
    "SELECT", "FROM", "WHERE", "AND", "OR", "NOT", "AS", "IS", "NULL", "IN", "LIKE", "BETWEEN", "(", ")", ",", ".", "*",
    "=", "<", ">", "<=", "<>", "-", "--", "1", "1.5", "1e3", "'a'", "'a%'", "s", "t", "device", "temp", "flag", "seq",
    "`my-col`", "_key", "_value", "true", "TRUE", "key", "date", "interval", "`s`", "\n", "/*", "';", "5L", "x",
]  # fmt: skip
START = st.sampled_from(["SELECT device FROM s WHERE ", "SELECT ", "SELECT device FROM ", "SELECT device, "])
END = st.sampled_from(["", " FROM s", " FROM s WHERE flag", " AND flag"])
QUERIES = st.builds(lambda a, b, c: a + " ".join(b) + c, START, st.lists(st.sampled_from(SOUP), max_size=7), END)


@settings(examples(80, 3000), suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.filter_too_much])
@given(QUERIES)
@example("SELECT device FROM s WHERE flag AND NOT flag = true")
def test_no_text_means_something_else_to_spark(session: SparkSession, text: str) -> None:
    mine, theirs = by_both(session, text, JSON)
    assume(mine is not None)
    assert comparable(mine) == comparable(theirs)
