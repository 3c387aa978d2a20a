"""Values and literals, compared with other ways to write them; and false bytes."""

from __future__ import annotations

import datetime
import decimal
import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.connect.binlog import columns, events
from barnabas.connect.binlog.charsets import CODECS, Undecoded, decoder, is_certain, literal
from barnabas.connect.binlog.columns import Told, layout_of
from barnabas.connect.binlog.events import EventError, Table

CHARSETS = {63: "binary", 45: "utf8mb4", 8: "latin1"}


def table(types: bytes, metadata: bytes) -> Table:
    """A table map with all optional parts."""
    names = [f"c{number}" for number in range(len(types))]
    signs = bytes((sum(kind in columns._OF_MARIADB.numeric for kind in types) + 7) // 8)
    return Table("d", "t", types, metadata, bytes(8), signs, (45, {}), None, names, None, None, None, None, [0])


def encoded(value: decimal.Decimal, precision: int, scale: int) -> bytes:
    """A DECIMAL as the server packs it: groups of nine digits, with the sign in the first bit."""
    sizes = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)
    whole, _, part = f"{abs(value):0{precision + 1}.{scale}f}".partition(".")
    whole = whole[-(precision - scale) :] if precision > scale else ""
    head = len(whole) % 9
    groups = [whole[:head], *(whole[at : at + 9] for at in range(head, len(whole), 9))]
    groups += [part[at : at + 9] for at in range(0, len(part), 9)]
    raw = b"".join(int(group).to_bytes(sizes[len(group)], "big") for group in groups if group)
    if value < 0:
        raw = bytes(byte ^ 0xFF for byte in raw)
    return bytes([raw[0] ^ 0x80]) + raw[1:]


@given(st.integers(1, 65), st.integers(0, 30), st.data())
def test_decimals_of_all_sizes(precision: int, scale: int, data: st.DataObject) -> None:
    scale = min(scale, precision)
    number = data.draw(st.integers(-(10**precision) + 1, 10**precision - 1))
    with decimal.localcontext(decimal.Context(prec=80)):
        value = decimal.Decimal(number).scaleb(-scale)
        raw = encoded(value, precision, scale)
        text, end = columns._decimal(precision, scale)(b"x" + raw, 1)
        assert end == 1 + len(raw)
        assert decimal.Decimal(text) == value
        assert text == f"{value:.{scale}f}" or not value


@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_a_float_is_as_short_as_can_be_and_the_same(value: float) -> None:
    found, _ = columns._float(struct.pack("<f", value), 0)
    assert struct.pack("<f", found) == struct.pack("<f", value)
    assert len(repr(found)) <= len(repr(value))


def test_the_greatest_float_is_not_rounded_out_of_range() -> None:
    assert columns.shortest_float(struct.pack("<I", 0x7F7FFFFF)) == 3.4028234663852886e38


@given(st.text())
def test_a_text_in_sql_is_one_literal(text: str) -> None:
    """Undo the escapes as the server does: first the backslashes, then the quotes around the text."""
    found = literal(text)
    inner = found[1:-1]
    marks = {"0": "\0", "n": "\n", "r": "\r", "Z": "\x1a", "'": "'", '"': '"', "\\": "\\"}
    out, at = "", 0
    while at < len(inner):
        if inner[at] == "\\":
            out += marks[inner[at + 1]]
            at += 2
        else:
            assert inner[at] != "'"
            out += inner[at]
            at += 1
    assert out == text


def test_what_cannot_be_said_as_text_keeps_its_bytes() -> None:
    assert literal(decoder("geostd8")(b"\xc0")) == "_geostd8 x'c0'"
    assert decoder("utf8mb4")(b"\xff") == Undecoded("utf8mb4", b"\xff")
    assert literal(b"\x00\xff") == "x'00ff'"
    assert decoder("swe7")(b"][\\{") == "ÅÄÖä"
    assert decoder("swe7")(b"\x7f") == Undecoded("swe7", b"\x7f")
    assert decoder("latin1")(b"\x81\x8d\xe4") == "\x81\x8d\xe4"


def test_columns_that_nobody_names_are_asked_for() -> None:
    unnamed = table(b"\x03\x0f", b"\x20\x00")._replace(names=None, signedness=None, default_charset=None)
    assert columns.needs_telling(unnamed)
    told = [Told("id", True, "binary", key=1), Told("name", False, "utf8mb4")]
    layout = layout_of(unnamed._replace(primary_key=[]), CHARSETS, told)
    assert [column.name for column in layout.columns] == ["id", "name"]
    assert layout.key == (0,)
    row = b"\x00" + (2**32 - 1).to_bytes(4, "little") + b"\x02hi"
    assert list(layout.rows(row, 0, images=1)) == [([2**32 - 1, "hi"],)]
    with pytest.raises(EventError, match=r"had 2 columns, and has 1 now, .*SET GLOBAL binlog_row_metadata = 'FULL'"):
        layout_of(unnamed, CHARSETS, told[:1])


def test_null_is_not_a_value() -> None:
    layout = layout_of(table(b"\x03\x03", b""), CHARSETS, None)
    ((row,),) = layout.rows(b"\x02" + bytes(4), 0, images=1)
    assert layout.literals(row) == ["0", "NULL"]


@given(st.binary(max_size=60))
def test_rows_of_any_bytes_are_rows_or_an_error(data: bytes) -> None:
    types = bytes([3, 15, 246, 252, 18, 16, 254])
    meta = b"\x20\x00" + b"\x0a\x02" + b"\x02" + b"\x06" + b"\x03\x01" + b"\xfe\x08"
    layout = layout_of(table(types, meta), CHARSETS, None)
    try:
        for images in layout.rows(data, 0, images=1):
            layout.literals(images[0])
    except EventError:
        pass


@given(st.binary(max_size=80))
def test_events_of_any_bytes_are_read_or_refused(data: bytes) -> None:
    for read in (events.table_of, lambda body: events.query_of(body, compressed=True), events.mysql_gtid_of):
        try:
            read(data)
        except EventError:
            pass


def test_compressed_data_does_not_grow_over_what_it_says() -> None:
    bomb = zlib.compress(bytes(1 << 20))
    with pytest.raises(EventError, match="the 100 bytes that are told"):
        events.inflated(b"\x81\x64" + bomb[:-10])
    assert events.inflated(b"\x83" + (1 << 20).to_bytes(3, "big") + bomb) == bytes(1 << 20)
    with pytest.raises(EventError, match="begins with 0x33"):
        events.inflated(b"\x33")


@given(st.lists(st.text(alphabet="ab'\\", max_size=3), min_size=1, max_size=64, unique=True), st.data())
def test_what_is_chosen_of_a_set_is_a_text_that_chooses_the_same_or_a_number(
    values: list[str], data: st.DataObject
) -> None:
    bits = data.draw(st.integers(0, 2 ** len(values) - 1))
    found = columns.members(bits, tuple(values))
    if isinstance(found, str):
        assert bits == (sum(1 << values.index(each) for each in found.split(",")) if found else 0)
    else:
        assert found == bits
        assert "" in [value for number, value in enumerate(values) if bits >> number & 1]


def test_a_member_without_a_certain_text_is_a_number_and_the_others_are_texts() -> None:
    values = ("a", None, "b")
    assert [columns._enum(1, values)(bytes([number]), 0)[0] for number in range(5)] == [0, "a", 2, "b", 4]
    assert [columns.members(bits, values) for bits in (0, 1, 2, 5, 7, 8)] == ["", "a", 2, "a,b", 7, 8]


@given(st.sampled_from([*CODECS, "geostd8", "binary"]), st.text(max_size=3))
def test_a_text_is_certain_if_its_bytes_come_as_that_text(charset: str, text: str) -> None:
    try:
        raw = text.encode({"latin1": "cp1252", "swe7": "ascii"}.get(charset) or CODECS.get(charset, "ascii"))
    except UnicodeError:
        return
    assert is_certain(charset, text) == (decoder(charset)(raw) == text)


@given(st.datetimes(min_value=datetime.datetime(1, 1, 1)))
def test_old_times_are_times_and_with_a_fraction_refused(moment: datetime.datetime) -> None:
    number = int(f"{moment:%Y%m%d%H%M%S}".rjust(14, "0"))
    text, end = columns._old_datetime(0)(number.to_bytes(8, "little"), 0)
    assert (text, end) == (str(moment.replace(microsecond=0)), 8)
    text, end = columns._old_time(0)((-(number % 10**6)).to_bytes(3, "little", signed=True), 0)
    assert (text.lstrip("-"), end) == (f"{moment:%H:%M:%S}", 3)
    seconds = (((moment.year * 13 + moment.month) * 32 + moment.day) * 24 + moment.hour) * 3600
    fraction = (seconds + moment.minute * 60 + moment.second) * 10**6 + moment.microsecond
    with pytest.raises(ValueError, match=r"ALTER TABLE \.\.\. FORCE"):
        columns._old_datetime(0)((fraction | 0xFF).to_bytes(8, "big"), 0)
