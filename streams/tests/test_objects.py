"""Rows to JSON objects: the writers in C and in Python give the same bytes, which are JSON of the same values."""

from __future__ import annotations

import json
import math
import struct
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from barnabas.streams.encode.objects import Column, can_write, in_c, in_python, objects

pytest.importorskip("barnabas.streams.encode._objects", reason="no C compiler when the project was installed")

KINDS: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.bool_(): st.booleans(),
    pa.int8(): st.integers(-(2**7), 2**7 - 1),
    pa.int16(): st.integers(-(2**15), 2**15 - 1),
    pa.int32(): st.integers(-(2**31), 2**31 - 1),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.string(): st.text(),
    pa.float64(): st.floats() | st.integers(-(10**9), 10**9).map(lambda n: n / 1000),
}
FLOATS = [
    (0.0, "0.0"), (-0.0, "-0.0"), (1.0, "1.0"), (12.5, "12.5"), (100.0, "100.0"), (0.001, "0.001"), (0.00099, "9.9E-4"),
    (9999999.0, "9999999.0"), (1e7, "1.0E7"), (12345678.9, "1.23456789E7"), (1e23, "1.0E23"), (-1.5e-7, "-1.5E-7"),
    (math.pi, "3.141592653589793"), (1 / 3, "0.3333333333333333"), (0.0123456789012345, "0.0123456789012345"),
    (1.7976931348623157e308, "1.7976931348623157E308"), (5e-324, "5.0E-324"), (123456.0001234, "123456.0001234"),
]  # fmt: skip


@st.composite
def tables(draw: st.DrawFn) -> list[Column]:
    rows, skipped = draw(st.integers(0, 5)), draw(st.integers(0, 9))
    columns = []
    for number in range(draw(st.integers(1, 4))):
        kind = draw(st.sampled_from(sorted(KINDS, key=str)))
        size = rows + skipped
        values = draw(st.lists(st.none() | KINDS[kind], min_size=size, max_size=size))
        columns.append((draw(st.text(max_size=3)) + str(number), pa.array(values, kind)[skipped:]))
    return columns


@given(tables())
def test_both_writers_give_the_same_and_it_is_json(columns: list[Column]) -> None:
    written = in_c(columns)
    assert written.equals(in_python(columns))
    rows = zip(*(array.to_pylist() for _, array in columns), strict=True)
    for text, row in zip(written.to_pylist(), rows, strict=True):
        shown = dict(zip((name for name, _ in columns), row, strict=True))
        finite = {n: v for n, v in shown.items() if not (isinstance(v, float) and not math.isfinite(v))}
        told = json.loads(text)
        assert {name: told[name] for name in finite} == finite
        assert list(told) == list(shown)


@given(st.integers(0, 2**64 - 1))
@example(struct.unpack("<Q", struct.pack("<d", 1e16))[0])
def test_a_double_of_any_bits_is_written_so_that_it_comes_back(bits: int) -> None:
    (number,) = struct.unpack("<d", struct.pack("<Q", bits))
    columns = [("x", pa.array([number]))]
    (text,) = in_c(columns).to_pylist()
    assert in_python(columns).to_pylist() == [text]
    if math.isfinite(number):
        assert struct.pack("<d", json.loads(text)["x"]) == struct.pack("<d", number)


@pytest.mark.parametrize(("number", "text"), FLOATS)
def test_doubles_look_as_in_java(number: float, text: str) -> None:
    for write in (in_c, in_python):
        assert write([("x", pa.array([number]))]).to_pylist() == [b'{"x":%s}' % text.encode()]


def test_texts_are_escaped_as_jackson_does() -> None:
    value = pa.array(['"\\/\b\t\n\f\r\x01\x1f\x7f\u2028\u00e9\U0001f600']).cast(pa.string())
    expected = b'{"n\\"":"\\"\\\\/\\b\\t\\n\\f\\r\\u0001\\u001F\x7f' + '\u2028\u00e9\U0001f600"}'.encode()
    for write in (in_c, in_python, objects):
        assert write([('n"', value)]).to_pylist() == [expected]


@given(st.binary())
def test_bytes_that_are_no_text_are_replaced(value: bytes) -> None:
    columns = [("t", pa.array([value, None, b"x"]).view(pa.string()))]
    written = in_c(columns)
    assert written.equals(in_python(columns))
    assert json.loads(written[0].as_py())["t"] == value.decode("utf-8", "replace")


def test_what_cannot_be_written_is_known_beforehand() -> None:
    assert all(can_write(kind) for kind in KINDS)
    assert not can_write(pa.float32())
    assert not can_write(pa.timestamp("us"))
    assert not can_write(pa.list_(pa.string()))


def test_arrays_that_do_not_hold_together_are_refused() -> None:
    from barnabas.streams.encode._objects import write

    places = (5).to_bytes(4, "little") + (9).to_bytes(4, "little")
    with pytest.raises(ValueError, match="outside the data"):
        write(1, ((b'{"t":', 16, None, places, b"abc", 0),))
    with pytest.raises(ValueError, match="fewer values"):
        write(2, ((b'{"n":', 8, None, bytes(8), None, 0),))
    with pytest.raises(ValueError, match="no columns"):
        write(1, ())
