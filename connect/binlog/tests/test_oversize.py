"""Messages that are split, and messages that are truncated."""

from __future__ import annotations

import base64
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.connect.apply.changes import BadMessageError, Row, asked_of
from barnabas.connect.apply.parts import Parts
from barnabas.connect.binlog.charsets import Undecoded, literal
from barnabas.connect.binlog.oversize import MARK, PART, split, truncated
from barnabas.wire.batch import Record

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=400) | st.text("\\'\"\0\n😀é", max_size=400)
UNDECODED = st.binary(min_size=1).map(lambda data: Undecoded("gbk", data))
TEXTUAL = st.one_of(TEXTS, st.binary(max_size=400), UNDECODED).map(literal)
LITERALS = TEXTUAL | st.integers().map(str) | st.just("NULL")


def tdsql(where: list[str], field: list[str]) -> bytes:
    kind = "update" if where and field else "insert"
    told = {"eventtypestr": kind, "db": "d", "table": "t", "where": where, "field": field}
    return msgspec.json.encode(told)


@given(TEXTS, st.integers(4, 100))
def test_parts_are_texts_and_give_the_value_again(text: str, most: int) -> None:
    value = text.encode()
    parts = split(value, most)
    assert b"".join(parts) == value
    assert all(0 < len(part) <= most and part.decode() is not None for part in parts)


@given(st.lists(LITERALS, min_size=1, max_size=6), st.lists(LITERALS, max_size=6), st.integers(300, 4000))
def test_a_cut_row_fits_and_each_of_its_values_is_one_literal(where: list[str], field: list[str], most: int) -> None:
    value = tdsql(where, field or ["1"])
    if len(value) <= most:
        return
    cut = truncated(value, most)
    if cut is None:
        return
    assert len(cut) <= most
    told = msgspec.json.decode(cut)
    marks = {(mark["in"], mark["column"]): mark["characters"] for mark in told[MARK]}
    assert marks
    whole = {"where": where, "field": field or ["1"]}
    for name, texts in whole.items():
        for number, text in enumerate(texts, 1):
            if (name, number) in marks:
                assert marks[name, number] == len(text) > len(told[name][number - 1])
                assert text.startswith(told[name][number - 1][:-1])
            else:
                assert told[name][number - 1] == text
    row = asked_of(cut, copied=False)  # this checks that each of them is one literal
    assert isinstance(row, Row)
    assert "has only the beginning of" in row.cut


def test_the_longest_text_is_cut_and_no_more_than_is_needed() -> None:
    value = tdsql([], ["1", literal("a" * 3000), literal("b" * 2000), literal("c" * 500)])
    cut = truncated(value, 5500)
    assert cut is not None
    told = msgspec.json.decode(cut)
    assert told[MARK] == [{"in": "field", "column": 2, "characters": 3002}]
    assert 5400 < len(cut) <= 5500
    assert told["field"][2:] == [literal("b" * 2000), literal("c" * 500)]


def test_what_has_no_long_texts_cannot_be_cut() -> None:
    assert truncated(tdsql([], ["1"] * 5000), 5000) is None


@pytest.mark.parametrize(
    "told",
    [
        {"op": "u", "source": {"db": "d", "table": "t"}, "before": {"v": "x"}, "after": {"v": "PLACE", "n": 1}},
        {"type": "insert", "database": "d", "table": "t", "data": {"v": "PLACE", "n": 1}},
    ],
)
def test_base64_that_is_cut_is_base64(told: dict[str, Any]) -> None:
    whole = base64.b64encode(bytes(5000)).decode()
    value = msgspec.json.encode(told).replace(b"PLACE", whole.encode())
    cut = truncated(value, 3001)
    assert cut is not None
    assert len(cut) <= 3001
    again = msgspec.json.decode(cut)
    image = again.get("after") or again.get("data")
    assert 2000 < len(base64.b64decode(image["v"], validate=True)) < 5000
    assert again[MARK] == [{"in": "after" if "after" in told else "data", "characters": len(whole), "column": "v"}]
    found = asked_of(cut, copied=False)
    assert isinstance(found, Row)
    assert "v of 6668 characters" in found.cut


def test_a_statement_that_is_cut_says_so() -> None:
    told = {"eventtypestr": "query", "db": "d", "table": "", "sql": "CREATE TABLE t (v INT) COMMENT '" + "x" * 2000}
    cut = truncated(msgspec.json.encode(told), 1000)
    assert cut is not None
    assert msgspec.json.decode(cut)[MARK] == [{"in": "sql", "characters": 2032}]
    found = asked_of(cut, copied=False)
    assert found is not None
    assert "sql of 2032 characters" in found.cut


# --- joined again -----------------------------------------------------------------------------------------------------


def part(told: bytes | None, value: bytes, offset: int = 0, *, index: bytes = b"1") -> Record:
    headers: tuple[tuple[str, bytes | None], ...] = (("barnabas.gtid", b"0-1-2"), ("barnabas.index", index))
    if told is not None:
        headers = (*headers, (PART, told))
    return Record(b"key", value, 5, headers, offset)


def test_parts_are_one_message_at_the_place_of_the_first() -> None:
    parts = Parts()
    assert parts.joined(part(None, b"before", 1)) == part(None, b"before", 1)
    assert parts.first is None
    assert parts.joined(part(b"1/3", b"a", 7)) is None
    assert parts.joined(part(b"2/3", b"b", 8)) is None
    assert parts.first == 7
    whole = parts.joined(part(b"3/3", b"c", 9))
    assert whole is not None
    assert (whole.value, whole.offset, parts.first) == (b"abc", 9, None)
    assert parts.joined(part(None, b"after", 10)) == part(None, b"after", 10)


@pytest.mark.parametrize(
    ("before", "then"),
    [
        ([], part(b"2/3", b"")),
        ([], part(b"4/3", b"")),
        ([], part(b"0/1", b"")),
        ([], part(b"one", b"")),
        ([], part(b"1/" + b"9" * 5000, b"")),
        ([part(b"1/3", b"")], part(b"3/3", b"")),
        ([part(b"1/3", b"")], part(b"1/3", b"")),
        ([part(b"1/3", b"")], part(b"2/2", b"")),
        ([part(b"1/3", b"")], part(b"2/3", b"", index=b"2")),
        ([part(b"1/3", b"")], part(None, b"")),
    ],
)
def test_parts_that_do_not_fit_together_are_no_message(before: list[Record], then: Record) -> None:
    parts = Parts()
    for each in before:
        assert parts.joined(each) is None
    with pytest.raises(BadMessageError, match=r"part"):
        parts.joined(then)


def test_parts_without_end_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("barnabas.connect.apply.parts.MOST_BYTES", 1000)
    parts = Parts()
    for number in range(1, 11):
        assert parts.joined(part(b"%d/999999999" % number, bytes(100))) is None
    with pytest.raises(BadMessageError, match="more than 1,000 bytes"):
        parts.joined(part(b"11/999999999", b"x"))
