"""The parser for the statements of `barnabas sql`."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.client.errors import ClientError
from barnabas.scripts.insert import Insert
from barnabas.scripts.statements import (
    AlterTopic,
    ControlStream,
    CreateStream,
    CreateTopic,
    Describe,
    DescribeStream,
    DropStream,
    DropTopic,
    Explain,
    Select,
    Show,
    parse,
    split,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("CREATE TOPIC a", CreateTopic("a", False, None, -1, {}, None)),
        ("create topic if not exists `a b` partitions 3", CreateTopic("a b", True, None, 3, {}, None)),
        (
            "CREATE TOPIC s (device STRING, at STRUCT<x: DOUBLE, y: DECIMAL(3,1)>) PARTITIONS 2",
            CreateTopic("s", False, "device STRING, at STRUCT<x: DOUBLE, y: DECIMAL(3,1)>", 2, {}, None),
        ),
        (
            "CREATE TOPIC my.hot-1 WITH ('retention.ms' = '1000', 'a' = 'it''s') AS SELECT * FROM s WHERE x = ')'",
            CreateTopic(
                "my.hot-1", False, None, -1, {"retention.ms": "1000", "a": "it's"}, "SELECT * FROM s WHERE x = ')'"
            ),
        ),
        ("CREATE TOPIC a AS\n SELECT b\nFROM c", CreateTopic("a", False, None, -1, {}, "SELECT b\nFROM c")),
        ("DROP TOPIC a", DropTopic("a", False)),
        ("drop topic if exists `a`", DropTopic("a", True)),
        ("DROP TOPIC a CASCADE", DropTopic("a", False, True)),
        ("ALTER TOPIC a AS SELECT 1 FROM b", AlterTopic("a", query="SELECT 1 FROM b")),
        ("ALTER TOPIC a SET ('k' = 'v')", AlterTopic("a", options={"k": "v"})),
        ("ALTER TOPIC a INFER SCHEMA", AlterTopic("a", infer=True)),
        ("show queries", Show("QUERIES")),
        ("SHOW TOPICS", Show("TOPICS")),
        ("DESC TOPIC a", Describe("a")),
        ("describe topic `x y`", Describe("x y")),
        (
            "CREATE STREAM avg10 WATERMARK 5s INTO avg_by_device AS SELECT avg(x) FROM s INTERVAL(10s)",
            CreateStream(
                "avg10",
                False,
                "avg_by_device",
                -1,
                {},
                "WATERMARK 5s                    AS SELECT avg(x) FROM s INTERVAL(10s)",
            ),
        ),
        (
            "create stream if not exists `a b` into my.out-1 partitions 3 with ('retention.ms' = '1', 'x' = ')')\n"
            "PRE_FILTER(note <> 'INTO x') AS SELECT INTO FROM s",
            CreateStream(
                "a b",
                True,
                "my.out-1",
                3,
                {"retention.ms": "1", "x": ")"},
                "PRE_FILTER(note <> 'INTO x') AS SELECT INTO FROM s",
            ),
        ),
        ("CREATE STREAM a SELECT 1", CreateStream("a", False, "a", -1, {}, "SELECT 1")),
        ("DROP STREAM a", DropStream("a", False)),
        ("drop stream if exists `a`", DropStream("a", True)),
        ("PAUSE STREAM a", ControlStream("a", "PAUSE")),
        ("recalculate stream `a`", ControlStream("a", "RECALCULATE")),
        ("SHOW STREAMS", Show("STREAMS")),
        ("DESCRIBE STREAM a", DescribeStream("a")),
        ("EXPLAIN STREAM a", Explain("a")),
        ("EXPLAIN CREATE STREAM a AS SELECT 1", Explain(CreateStream("a", False, "a", -1, {}, "AS SELECT 1"))),
        ("SELECT 1", Select("SELECT 1")),
        ("with a as (select 1) select * from a", Select("with a as (select 1) select * from a")),
    ],
)
def test_a_statement_is_understood(text: str, expected: object) -> None:
    assert parse(text) == expected


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("EXPLAIN x", "EXPLAIN CREATE STREAM"),
        ("MEASURE x", "expected SELECT, CREATE"),
        ("CREATE STREAM", "CREATE STREAM"),
        ("CREATE STREAM a INTO", "expected the name of a topic"),
        ("CREATE STREAM a WITH ('k' = 'v'", "not closed"),
        ("CREATE STREAM a SUBTABLE('x", "the quote ' is not closed"),
        ("PAUSE a", "PAUSE STREAM name"),
        ("RESUME STREAM a IGNORE UNTREATED", "IGNORE UNTREATED is not supported"),
        ("CREATE TABLE a", "CREATE TOPIC"),
        ("CREATE TOPIC a PARTITIONS x", "CREATE TOPIC"),
        ("CREATE TOPIC a (b INT", "not closed"),
        ("CREATE TOPIC a WITH (k = v)", "'key' = 'value'"),
        ("CREATE TOPIC a WITH ('k' = 'v',)", "'key' = 'value'"),
        ("DROP TOPIC", "DROP TOPIC"),
        ("DROP TOPIC a b", "DROP TOPIC"),
        ("DROP STREAM a CASCADE", "DROP STREAM"),
        ("ALTER TOPIC a RENAME", "ALTER TOPIC"),
        ("ALTER TOPIC a SET ('k' = 'v') x", "ALTER TOPIC"),
        ("SHOW TABLE", "SHOW TOPICS"),
        ("DESC", "DESCRIBE [TOPIC] name"),
        ("SHOW2 TOPICS", "SHOW TOPICS"),
    ],
)
def test_what_is_not_understood_is_told_with_the_form_that_is(text: str, told: str) -> None:
    with pytest.raises(ClientError) as caught:
        parse(text)
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)


def test_statements_end_with_semicolons_that_are_not_quoted() -> None:
    text = "SELECT ';' x; -- one; two\nSHOW TOPICS ;\n /* no;\nthing */ DROP TOPIC `a;b` ; ;"
    assert list(split(text)) == ["SELECT ';' x", "SHOW TOPICS", "DROP TOPIC `a;b`"]
    assert list(split(" ;; ")) == []


@given(st.text(max_size=60))
def test_any_text_is_a_statement_or_a_clear_error(text: str) -> None:
    with contextlib.suppress(ClientError):
        for one in split(text):
            assert parse(one)


def quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "''") + "'"


@given(st.lists(st.tuples(st.text(), st.text()), min_size=1, max_size=3), st.text())
def test_what_is_quoted_comes_out_again_wherever_it_stands(options: list[tuple[str, str]], value: str) -> None:
    """Quotes, backslashes, semicolons, parentheses and comments inside a quoted text do not end the statement."""
    with_ = f"WITH ({', '.join(f'{quoted(key)} = {quoted(text)}' for key, text in options)})"
    query = f"SELECT {quoted(value)} AS x FROM s"
    stream = f"SUBTABLE({quoted(value)}) AS SELECT {quoted(value)} AS x FROM s INTERVAL(1s)"
    statements = list(
        split(
            f"CREATE TOPIC a {with_}; ALTER TOPIC a SET {with_[5:]}; CREATE TOPIC a {with_} AS {query};"
            f"CREATE STREAM b {with_} {stream}; INSERT INTO a VALUES ({quoted(value)}); {query}"
        )
    )
    found = [parse(one) for one in statements]
    expected = dict(options)
    assert found == [
        CreateTopic("a", False, None, -1, expected, None),
        AlterTopic("a", options=expected),
        CreateTopic("a", False, None, -1, expected, query),
        CreateStream("b", False, "b", -1, expected, stream),
        Insert("a", None, [[value]]),
        Select(query),
    ]


def test_a_backslash_in_quotes_is_written_twice() -> None:
    text = r"CREATE TOPIC a WITH ('barnabas.value.csv.separator' = '\\'); INSERT INTO b VALUES ('x')"
    first, second = map(parse, split(text))
    assert first == CreateTopic("a", False, None, -1, {"barnabas.value.csv.separator": "\\"}, None)
    assert second == Insert("b", None, [["x"]])
    with pytest.raises(ClientError, match=r"the quote ' is not closed"):
        list(split(text.replace(r"'\\'", r"'\'")))
    escaped = r"CREATE STREAM s WITH ('k' = 'it\'s;x', 'tab' = '\t', 'raw' = r'\d;') AS SELECT 1"
    (one,) = map(parse, split(escaped))
    assert one == CreateStream("s", False, "s", -1, {"k": "it's;x", "tab": "\t", "raw": r"\d;"}, "AS SELECT 1")


def test_hints_of_a_select_stay_and_comments_in_comments_go() -> None:
    text = "SELECT /*+ BROADCAST(s) */ x /* a /* ; */ b */ FROM s -- y\r; SHOW TOPICS"
    assert list(split(text)) == ["SELECT /*+ BROADCAST(s) */ x   FROM s", "SHOW TOPICS"]
