"""Mistakes that are reported before a broker is asked, and habits from other databases."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.client.errors import ClientError
from barnabas.scripts.mistakes import check_text, pointed
from barnabas.scripts.statements import Describe, Explain, Select, Show, ShowCreate, Written, parse, written


@pytest.mark.parametrize(
    ("text", "told", "caret"),
    [
        ("SELECT 'abc", "line 1, column 8, at \"'abc\": the quote ' is not closed", 7),
        ("SELECT (1", 'line 1, column 8, at "(1": the parenthesis is not closed', 7),
        ("SELECT 1)", 'line 1, column 9, at ")": there is no ( before this )', 8),
        ("SELECT a FROM t\nSELECT b FROM t", 'line 2, column 1, at "SELECT b FROM t": a ; is missing before SELECT', 0),
        ("SELECT a FROM t\nDROP TOPIC t", "a ; is missing before DROP", 0),
        ("CREATE TOPIC a (x INT)\nINSERT INTO a VALUES (1)", "a ; is missing before INSERT", 0),
        ("SELECT a, FROM t", "remove the comma before FROM", 8),
        ("SELECT a FROM t WHERE", "line 1, column 22, at the end: expected an expression", 21),
        ("SELECT a FROM", "line 1, column 14, at the end: expected the name of a topic", 13),
        ("SELECT a +", "expected an expression", 10),
        ("SELECT a FROM t WHERE ORDER BY a", "expected an expression", 22),
    ],
)
def test_a_mistake_is_told_with_its_place(text: str, told: str, caret: int) -> None:
    with pytest.raises(ClientError) as caught:
        check_text(text)
    assert told in str(caught.value)
    assert pointed(text, str(caught.value))[1] == f"  {' ' * caret}^"


@pytest.mark.parametrize(
    "text",
    [
        "SELECT a FROM t UNION ALL SELECT b FROM t",
        "SELECT a FROM t UNION SELECT b FROM t EXCEPT SELECT 1 INTERSECT DISTINCT SELECT 2",
        "WITH a AS (SELECT 1) SELECT * FROM a",
        "FROM t SELECT a",
        "CREATE TOPIC a AS SELECT b FROM c",
        "EXPLAIN CREATE STREAM a AS SELECT 1 FROM b INTERVAL(1s)",
        "SELECT select FROM t",
        "SELECT a select, b FROM t",
        "SELECT ')' FROM t",
        "SELECT a FROM t -- SELECT (",
        "SELECT extract(YEAR FROM a) FROM t",
        "SHOW CREATE TOPIC t",
        "SELECT create, topic FROM t",
        "SELECT -1",
        "SELECT *",
        "SELECT order, group FROM t",
    ],
)
def test_what_may_be_right_is_left_alone(text: str) -> None:
    check_text(text)


def test_the_caret_stands_in_a_long_line() -> None:
    text = "SELECT " + "a, " * 1000 + "'x"
    with pytest.raises(ClientError) as caught:
        check_text(text)
    line, caret = pointed(text, str(caught.value))
    assert line[caret.index("^")] == "'"
    assert len(line) < 110


def test_a_line_with_control_characters_points_at_the_right_place() -> None:
    line, caret = pointed("\x1b[2J 'x", "line 1, column 6, at y: z")
    assert line == "   [2J 'x"
    assert line[caret.index("^")] == "'"


@given(st.text(st.sampled_from("SELECT FROMtwhereORDERby(),;'`\"\\\n-*/=<>+1 .")))
def test_any_text_is_checked(text: str) -> None:
    try:
        check_text(text)
    except ClientError as error:
        pointed(text, str(error))


def test_two_hundred_thousand_parentheses_are_checked() -> None:
    text = "SELECT " + "(" * 200_000
    with pytest.raises(ClientError, match="the parenthesis is not closed"):
        check_text(text)
    with pytest.raises(ClientError, match="nested too deeply"):
        check_text(text + "1" + ")" * 200_000)


# --- habits -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("SHOW TABLES", Show("TOPICS")),
        ("DESC t", Describe("t")),
        ("DESCRIBE TABLE t", Describe("t")),
        ("DESCRIBE topic", Describe("topic")),
        ("DESCRIBE `a b`", Describe("a b")),
        ("DESCRIBE my.topic-1", Describe("my.topic-1")),
        ("SHOW COLUMNS FROM t", Describe("t")),
        ("SHOW CREATE TABLE t", ShowCreate("t")),
        ("show create topic `a b`", ShowCreate("a b")),
        ("EXPLAIN SELECT 1", Explain(Select("SELECT 1"))),
    ],
)
def test_habits_that_work(text: str, meant: object) -> None:
    assert parse(text) == meant


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("CREATE TABLE a (x INT)", "CREATE TOPIC name"),
        ("create or replace table a as select 1", "CREATE TOPIC name"),
        ("CREATE VIEW v AS SELECT 1", "query topic"),
        ("DROP TABLE a", "DROP TOPIC name"),
        ("USE x", "no databases"),
        ("SET x = y", "options of the command"),
        ("UPDATE t SET a = 1", "INSERT INTO"),
        ("DELETE FROM t", "INSERT INTO"),
        ("INSERT INTO t SELECT * FROM s", "CREATE TOPIC name AS SELECT"),
        ("BEGIN", "no transactions"),
        ("SELEC 1", "did you mean SELECT?"),
        ("CRAETE TOPIC a", "did you mean CREATE?"),
    ],
)
def test_other_habits_are_told_what_to_write(text: str, told: str) -> None:
    with pytest.raises(ClientError) as caught:
        parse(text)
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_statement_knows_its_line() -> None:
    text = "-- first\nSELECT 1;\n\n  SHOW TOPICS\n;SELECT 2 -- x\n"
    assert list(written(text)) == [Written("SELECT 1", 2), Written("SHOW TOPICS", 4), Written("SELECT 2", 5)]
