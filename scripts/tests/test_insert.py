"""The parser for INSERT: round trips of any literals, and the position of errors."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.client.errors import ClientError
from barnabas.scripts.insert import Insert, Literal
from barnabas.scripts.statements import parse, split

_floats = st.floats(allow_nan=False, allow_infinity=False)
_values = st.none() | st.booleans() | st.integers() | st.text() | st.binary() | _floats


def shown(value: object) -> str:
    """A value as a literal."""
    if isinstance(value, str):
        return "'" + value.replace("\\", "\\\\").replace("'", "''") + "'"
    if isinstance(value, bytes):
        return f"X'{value.hex()}'"
    if value is None or isinstance(value, bool):
        return "NULL" if value is None else str(value).upper()
    return repr(value)


def plain(value: Literal) -> object:
    return json.loads(bytes(value)) if isinstance(value, msgspec.Raw) else value


@given(st.lists(st.lists(_values, min_size=2, max_size=2), min_size=1))
def test_any_literals_come_back(rows: list[list[object]]) -> None:
    text = "INSERT INTO `a b`(x, `y;z`) VALUES " + ", ".join(f"({', '.join(map(shown, row))})" for row in rows)
    (one,) = split(text)
    found = parse(one)
    assert isinstance(found, Insert)
    assert (found.topic, found.columns) == ("a b", ["x", "y;z"])
    assert [[plain(value) for value in row] for row in found.rows] == rows


def test_quotes_and_times() -> None:
    texts = "'it''s', " + '"say ""x""", ' + r"'a\nb\'c'"
    found = parse(f"insert into shop.orders-1 values ({texts}, TIMESTAMP '2024-01-01', date '2024-01-02')")
    assert found == Insert("shop.orders-1", None, [["it's", 'say "x"', "a\nb'c", "2024-01-01", "2024-01-02"]])


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("INSERT orders VALUES (1)", "column 8.*expected INTO"),
        ("INSERT INTO (a) VALUES (1)", "the name of a topic"),
        ("INSERT INTO t", "expected VALUES"),
        ("INSERT INTO t VALUES", "a row in parentheses"),
        ("INSERT INTO t VALUES (1) (2)", "a comma or the end"),
        ("INSERT INTO t VALUES (1),", "a row in parentheses"),
        ("INSERT INTO t VALUES ()", "expected a literal"),
        ("INSERT INTO t VALUES (1,)", "expected a literal"),
        ("INSERT INTO t (a b) VALUES (1)", "the name of a column"),
        ("INSERT INTO t (a,) VALUES (1)", "the name of a column"),
        ("INSERT INTO t VALUES (1), (1, 2)", "column 27.*has 2 values, not 1"),
        ("INSERT INTO t VALUES (1e)", "not a number"),
        ("INSERT INTO t VALUES (- -1)", "expected a literal"),
        ("INSERT INTO t VALUES (X'0g')", "not a hexadecimal number"),
        ("INSERT INTO t VALUES ('a)", "not closed"),
        ("INSERT INTO t VALUES (ARRAY(1))", "expected a literal"),
        ("INSERT INTO t VALUES ('a' \"b\")", "expected a comma"),
    ],
)
def test_what_is_none_is_told_with_its_place(text: str, why: str) -> None:
    with pytest.raises(ClientError, match=why):
        parse(text)


def test_a_quote_behind_a_backslash_does_not_end_a_statement() -> None:
    text = r"INSERT INTO t VALUES ('it\'s; -- x'); SHOW TOPICS"
    first, second = split(text)
    assert parse(first) == Insert("t", None, [["it's; -- x"]])
    assert second == "SHOW TOPICS"
