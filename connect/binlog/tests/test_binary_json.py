"""Binary JSON: bytes made from MySQL's description, a round trip of any document, and false bytes."""

from __future__ import annotations

import json
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.connect.binlog import columns
from barnabas.connect.binlog.binary_json import text_of

Made = tuple[int, bytes]


def text(data: bytes) -> str:
    return text_of(data, columns._decimal)


def counted(data: bytes) -> bytes:
    size, out = len(data), b""
    while True:
        out += bytes([size & 0x7F | (0x80 if size > 0x7F else 0)])
        size >>= 7
        if not size:
            return out + data


def made(value: Any, *, large: bool) -> Made:
    """A value's type and data."""
    if value is None or isinstance(value, bool):
        return 4, bytes([0 if value is None else 1 if value else 2])
    if isinstance(value, int):
        for kind, form, low, high in (
            *((5, "<h", -(2**15), 2**15), (6, "<H", 0, 2**16), (7, "<i", -(2**31), 2**31)),
            *((8, "<I", 0, 2**32), (9, "<q", -(2**63), 2**63), (10, "<Q", 0, 2**64)),
        ):
            if low <= value < high:
                return kind, struct.pack(form, value)
    if isinstance(value, float):
        return 11, struct.pack("<d", value)
    if isinstance(value, str):
        return 12, counted(value.encode())
    if isinstance(value, dict):
        names = [name.encode() for name in sorted(value, key=lambda name: (len(name.encode()), name.encode()))]
        return (1 if large else 0), container([value[name.decode()] for name in names], names, large=large)
    return (3 if large else 2), container(value, None, large=large)


def container(values: list[Any], names: list[bytes] | None, *, large: bool) -> bytes:
    form, width = ("<I", 4) if large else ("<H", 2)
    keys = b""
    place = 2 * width + len(values) * (1 + width) + (len(names) * (width + 2) if names is not None else 0)
    for name in names or []:
        keys += struct.pack(form, place) + struct.pack("<H", len(name))
        place += len(name)
    entries = rest = b""
    for value in values:
        kind, data = made(value, large=large)
        if kind in ((4, 5, 6, 7, 8) if large else (4, 5, 6)):
            entries += bytes([kind]) + data.ljust(width, b"\0")
        else:
            entries += bytes([kind]) + struct.pack(form, place)
            rest += data
            place += len(data)
    return struct.pack(form, len(values)) + struct.pack(form, place) + keys + entries + b"".join(names or []) + rest


_characters = st.characters(codec="utf-8")
_documents = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8"), max_size=200),
    lambda inner: (
        st.lists(inner, max_size=5) | st.dictionaries(st.text(st.characters(codec="utf-8")), inner, max_size=5)
    ),
    max_leaves=30,
)


@given(_documents, st.booleans())
def test_any_document_comes_back(document: Any, large: bool) -> None:
    kind, data = made(document, large=large)
    assert json.loads(text(bytes([kind]) + data)) == document


def test_a_document_is_printed_as_the_server_does() -> None:
    kind, data = made({"a": [1, 2.0, 1e100, None], "b": {"c": 'é"\n'}}, large=False)
    assert text(bytes([kind]) + data) == '{"a": [1, 2.0, 1e100, null], "b": {"c": "é\\"\\n"}}'


@pytest.mark.parametrize(
    ("kind", "data", "shown"),
    [
        (246, b"\x04\x02" + bytes.fromhex("8c22"), "12.34"),
        (10, struct.pack("<q", ((2015 * 13 + 1) << 5 | 15) << 41), '"2015-01-15"'),
        (
            *(12, struct.pack("<q", (((2015 * 13 + 1) << 5 | 15) << 17 | 23 << 12 | 24 << 6 | 25) << 24 | 120000)),
            '"2015-01-15 23:24:25.120000"',
        ),
        (11, struct.pack("<q", (838 << 12 | 59 << 6 | 58) << 24 | 7), '"838:59:58.000007"'),
        (11, struct.pack("<q", -((1 << 12 | 2 << 6 | 3) << 24)), '"-01:02:03.000000"'),
        (15, b"\0\xff", '"base64:type15:AP8="'),
    ],
)
def test_values_of_other_types(kind: int, data: bytes, shown: str) -> None:
    assert text(bytes([15, kind]) + counted(data)) == shown


@pytest.mark.parametrize(
    "data",
    [
        b"\x02\x01\x00\x07\x00\x02\x00\x00",  # an array that contains itself
        b"\x02\xff\xff\x04\x00",  # more elements than bytes
        b"\x02\x01\x00\xff\xff\x04\x00\x00",  # a size beyond the data
        b"\x00\x01\x00\x0b\x00\x09\x00\xff\xff\x04\x00\x00",  # a key beyond the end
        b"\x0c\xff\xff\xff\xff\xff\xff",  # a length without an end
        b"\x0c\x05ab",
        b"\x0c\x01\xff",
        b"\x04\x07",
        b"\x0d",
        b"\x0b" + struct.pack("<d", float("nan")),
        b"\x0f\xf6\x02\x63\x00",  # DECIMAL(99,0)
        b"\x0f\x0c\x01a",
        b"\x05\x01",
    ],
)
def test_bytes_that_lie_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        text(data)


def test_a_value_that_unfolds_to_more_than_it_has_is_refused() -> None:
    """Each of 30 arrays contains the next one twice: a billion elements if all were read."""
    arrays = b"".join(struct.pack("<HH", 2, 10) + struct.pack("<BH", 2, 10) * 2 for _ in range(30))
    with pytest.raises(ValueError, match="more elements than bytes"):
        text(b"\x02" + arrays + struct.pack("<HH", 0, 4))


@given(st.binary(max_size=100))
def test_any_bytes_are_a_document_or_refused(data: bytes) -> None:
    try:
        json.loads(text(data))
    except ValueError:
        return


def test_a_column_of_type_json_is_read_and_can_be_inserted_again() -> None:
    from barnabas.connect.binlog.tests.test_columns import CHARSETS, table

    kind, data = made({"it's": [1]}, large=False)
    value = bytes([kind]) + data
    layout = columns.layout_of(table(bytes([columns.JSON]), b"\x04"), CHARSETS, None)
    ((row,),) = layout.rows(b"\0" + struct.pack("<I", len(value)) + value, 0, images=1)
    assert row == ['{"it\'s": [1]}']
    assert layout.literals(row) == ["'{\\\"it\\'s\\\": [1]}'"]
