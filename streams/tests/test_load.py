"""Rows into topics: texts are parsed, typed, written in the topic's format, and read back unchanged."""

from __future__ import annotations

import csv
import io
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.streams.load import text
from barnabas.streams.load.rows import Bad, CsvRows, JsonRows, Picks, Rows, header_of, inferred
from barnabas.streams.load.text import Piece, pieces
from barnabas.streams.load.values import Form, form_of, values_of
from barnabas.streams.schema.ddl import ddl_text, parse_ddl
from barnabas.streams.source.csv_values import parse_csv
from barnabas.streams.source.json_values import parse_json
from barnabas.streams.wal import WalError

ALL = Form(
    parse_ddl(
        "a STRING, b BIGINT, c DOUBLE, t TIMESTAMP, d DATE, e DECIMAL(10,2), n TIMESTAMP_NTZ, g BOOLEAN, s SMALLINT"
    )
)
ROW = {
    "a": 'x,"y\nz é',
    "b": -(2**63),
    "c": 1.5e-9,
    "t": datetime(2024, 1, 1, 0, 0, 0, 500_001, tzinfo=UTC),
    "d": date(2024, 2, 29),
    "e": Decimal("-12345678.90"),
    "n": datetime(1969, 12, 31, 23, 59, 59),
    "g": False,
    "s": 7,
}
NOTHING = dict.fromkeys(ROW)
NO_PICKS = Picks()


def read(data: bytes, *, quoted: bool = True) -> list[Piece]:
    return list(pieces(io.BytesIO(data), quoted=quoted))


def piece_of(*records: bytes) -> Piece:
    return Piece(list(range(1, len(records) + 1)), list(records), 0, len(records) + 1)


def csv_rows(form: Form, columns: str, *records: bytes, picks: Picks = NO_PICKS) -> Rows:
    return CsvRows(form, columns.split(","), picks, separator=",", null="").rows(piece_of(*records))


# -- texts -----------------------------------------------------------------------------------------------------------


@given(
    rows=st.lists(st.lists(st.text(st.characters(exclude_characters="\r\0", codec="utf-8"), max_size=5), min_size=2)),
    size=st.integers(1, 40),
)
def test_pieces_hold_the_records_that_a_reader_of_csv_finds(rows: list[list[str]], size: int) -> None:
    out = io.StringIO()
    csv.writer(out, lineterminator="\n", quoting=csv.QUOTE_ALL).writerows(rows)
    data = out.getvalue().encode()

    class Slow(io.BytesIO):
        def read1(self, count: int | None = -1, /) -> bytes:
            return super().read1(size)

    found = list(pieces(Slow(data), quoted=True))
    records = [record for piece in found for record in piece.records]
    lines = [line for piece in found for line in piece.lines]
    assert [next(csv.reader([record.decode()])) for record in records] == rows
    starts = data.split(b"\n")
    assert all(starts[line - 1].startswith(record.split(b"\n")[0]) for line, record in zip(lines, records, strict=True))
    for before, piece in zip([0, *(p.end for p in found)], found, strict=False):
        again = list(pieces(io.BytesIO(data[before:]), quoted=True, at=before))
        assert [r for p in again for r in p.records][: len(piece.records)] == piece.records
    assert (found[-1].end if found else 0) == len(data)


def test_blank_lines_carriage_returns_and_the_byte_order_mark_are_no_rows() -> None:
    found = read(b"\xef\xbb\xbfa,b\r\n\r\n1,2\r\n   \n3,4")
    assert [record for piece in found for record in piece.records] == [b"a,b", b"1,2", b"3,4"]
    assert [line for piece in found for line in piece.lines] == [1, 3, 5]
    assert found[-1].end_line == 6


def test_a_quote_that_is_never_closed_does_not_take_all_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text, "MAX_RECORD_BYTES", 1000)
    monkeypatch.setattr(text, "PIECE_BYTES", 100)
    endless = io.BytesIO(b'a,b\n"' + b"x\n" * 5000)
    with pytest.raises(WalError, match="line 2: a quote that is not closed"):
        list(pieces(endless, quoted=True))
    with pytest.raises(WalError, match="line 1: a longer line"):
        list(pieces(io.BytesIO(b"x" * 5000), quoted=False))


# -- values ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("row", [ROW, NOTHING])
def test_what_is_written_as_json_is_read_back(row: dict[str, object]) -> None:
    table = pa.Table.from_pylist([row], schema=ALL.schema)
    back, bad = parse_json(values_of(table, ALL).cast(pa.binary()), ALL.schema)
    assert (back.to_pylist(), bad) == ([row], [])


def test_what_is_written_as_csv_is_read_back() -> None:
    row = ROW | {"a": 'a;"quoted" text'}
    form = ALL._replace(format="csv", separator=";", null="NULL")
    values = values_of(pa.Table.from_pylist([row, NOTHING], schema=ALL.schema), form)
    back, bad = parse_csv(values.cast(pa.binary()), ALL.schema, separator=";", null="NULL")
    assert (back.to_pylist(), bad) == ([row, NOTHING], [])


@pytest.mark.parametrize(("given_", "why"), [("two\nlines", "an end of a line"), ("NULL", "stands for null")])
def test_a_text_that_a_csv_field_cannot_be_is_refused(given_: str, why: str) -> None:
    form = Form(parse_ddl("a STRING"), "csv", ",", "NULL")
    with pytest.raises(WalError, match=why):
        values_of(pa.table({"a": [given_]}), form)


def test_lists_and_structs_are_written() -> None:
    schema = parse_ddl("s STRUCT<x: INT, t: TIMESTAMP>, l ARRAY<DECIMAL(4,1)>, a STRING")
    row = {"s": {"x": 1, "t": datetime(2024, 1, 1, tzinfo=UTC)}, "l": [Decimal("1.5"), None], "a": None}
    table = pa.Table.from_pylist([row], schema=schema)
    back, bad = parse_json(values_of(table, Form(schema)).cast(pa.binary()), schema)
    assert (back.to_pylist(), bad) == ([row], [])


def test_a_topic_says_what_its_values_are() -> None:
    keys = {"barnabas.value.format": "csv", "barnabas.value.schema": "a INT", "barnabas.value.csv.separator": "\\t"}
    assert form_of("t", keys) == Form(parse_ddl("a INT"), "csv", "\t", "")
    assert form_of("t", {}) is None
    assert form_of("t", {"barnabas.value.format": "json"}) is None
    with pytest.raises(WalError, match="Avro"):
        form_of("t", {"barnabas.value.format": "avro"})


# -- rows ------------------------------------------------------------------------------------------------------------


def test_csv_rows_have_keys_times_and_nulls() -> None:
    rows = csv_rows(ALL, "t,-,a", b"2024-01-01T00:00:01Z,left out,k1", b",,", picks=Picks("a", "t"))
    assert rows.bad == []
    assert rows.keys.to_pylist() == [b"k1", None]
    assert rows.times.to_pylist() == [1_704_067_201_000, None]
    found = parse_json(rows.values.cast(pa.binary()), ALL.schema)[0].to_pylist()
    assert found == [NOTHING | {"t": datetime(2024, 1, 1, 0, 0, 1, tzinfo=UTC), "a": "k1"}, NOTHING]


def test_each_malformed_line_is_told_with_its_reason_and_the_others_are_rows() -> None:
    rows = csv_rows(ALL, "a,b", b"x,1", b"y", b"z,many", b'"open,1', b"\xff,1", b"last,2")
    assert rows.lines == [1, 6]
    assert rows.bad == [
        Bad(2, "it has 1 fields, and there are 2 columns"),
        Bad(3, "'many' is not a valid BIGINT (column b)"),
        Bad(4, "a quote is not closed"),
        Bad(5, "it is not UTF-8"),
    ]


@pytest.mark.parametrize(
    ("columns", "picks", "why"),
    [
        ("a,other", Picks(), "the file has a column other, and the topic has not"),
        ("a,a", Picks(), "two columns a"),
        ("a", Picks(key="b"), "--key b: the file has no such column"),
        ("a", Picks(key="q"), "--key q: the topic has no such column"),
        ("a", Picks(time="a"), "--time a: expected a column of type TIMESTAMP"),
    ],
)
def test_columns_that_make_no_sense_are_refused_before_a_row_is_read(columns: str, picks: Picks, why: str) -> None:
    with pytest.raises(WalError, match=why):
        csv_rows(ALL, columns, picks=picks)


def test_json_lines_stay_as_they_are() -> None:
    form = Form(parse_ddl("a STRING, b BIGINT"))
    records = [b'{"b": 1, "more": [1], "a": "k"}', b"{", b'{"b": "x"}', b"{}"]
    rows = JsonRows(form, Picks("a", "b")).rows(piece_of(*records))
    assert rows.values.to_pylist() == [records[0], records[3]]
    assert (rows.lines, [bad.line for bad in rows.bad]) == ([1, 4], [2, 3])
    assert (rows.keys.to_pylist(), rows.times.to_pylist()) == ([b"k", None], [1, None])


def test_json_lines_for_a_topic_without_a_schema_are_any_objects() -> None:
    rows = JsonRows(None, Picks("k")).rows(piece_of(b'{"k": "a"}', b'{"k": 7}', b"[1]", b'{"k": null}', b"{}"))
    assert rows.keys.to_pylist() == [b"a", b"7", None, None]
    assert [bad.line for bad in rows.bad] == [3]
    with pytest.raises(WalError, match="--time needs"):
        JsonRows(None, Picks(time="t"))


def test_columns_are_inferred_and_codes_stay_texts() -> None:
    records = (
        b"1,1,007,1.5,true,2024-01-01T00:00:00Z,2024-01-01,x,",
        b"2,9007199254740993000,1,2,false,,2024-01-02,1,",
    )
    columns = ["i", "n", "code", "x", "g", "t", "d", "s", "nothing"]
    schema = inferred(columns, piece_of(*records), separator=",", null="")
    assert ddl_text(schema) == (
        "i BIGINT, n DOUBLE, code STRING, x DOUBLE, g BOOLEAN, t TIMESTAMP, d DATE, s STRING, nothing STRING"
    )


@pytest.mark.parametrize(("line", "expected"), [(b"a, b ,c", ["a", "b", "c"]), (b'"a,b",c', ["a,b", "c"])])
def test_the_first_line_names_the_columns(line: bytes, expected: list[str]) -> None:
    assert header_of(line, ",") == expected
