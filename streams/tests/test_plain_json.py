"""The JSON reader in C gives the results of Arrow's reader, and leaves records that it is not sure of to Arrow."""

from __future__ import annotations

import json
import struct
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from barnabas.streams.schema import parse_ddl
from barnabas.streams.source import plain_json
from barnabas.streams.source.json_values import _parse_any, parse_json
from barnabas.streams.source.plain_json import parse_plain
from barnabas.wire.tests.strategies import examples

pytest.importorskip("barnabas.streams.source._json", reason="the JSON reader in C is not built: it needs a C compiler")

SCHEMA = parse_ddl(
    "b BOOLEAN, i8 TINYINT, i16 SMALLINT, i32 INT, i64 BIGINT, f FLOAT, d DOUBLE, t STRING, `a é` STRING"
)
NUMBERS = st.one_of(
    st.integers(-(2**65), 2**65),
    st.integers(-300, 300),
    st.floats(allow_nan=False, allow_infinity=False),
    st.floats(width=32, allow_nan=False, allow_infinity=False),
    st.floats(-1000, 1000).map(lambda x: round(x, 3)),
)
SCALARS = st.one_of(NUMBERS, st.none(), st.booleans(), st.text(max_size=8))
NAMES = st.one_of(st.sampled_from(SCHEMA.names), st.text(max_size=3))
OTHERS = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner))
FITTING = st.fixed_dictionaries(
    {},
    optional={
        "b": st.booleans(),
        "i8": st.integers(-128, 127),
        "i16": st.integers(-32768, 32767),
        "i32": st.integers(-(2**31), 2**31 - 1),
        "i64": st.integers(-(2**63), 2**63 - 1),
        "f": NUMBERS,
        "d": NUMBERS,
        "t": st.text(),
        "a é": st.none() | st.text(),
        "other": OTHERS,
    },
)
OBJECTS = FITTING | st.dictionaries(NAMES, SCALARS | OTHERS, max_size=5)


@st.composite
def documents(draw: st.DrawFn) -> bytes | None:
    """Records as producers write them, and as they should not."""
    layout: dict[str, Any] = draw(
        st.sampled_from([{}, {"separators": (",", ":")}, {"indent": 1}, {"ensure_ascii": False}])
    )
    made = json.dumps(draw(OBJECTS), **layout).encode("utf-8", "surrogatepass")
    kind = draw(st.integers(0, 9))
    if kind == 0:
        return None
    if kind <= 2 and made:
        at = draw(st.integers(0, len(made) - 1))
        byte = draw(st.sampled_from([b"", b"0", b"-", b".", b"e", b'"', b"\\", b"{", b"}", b",", b" ", b"\xff", b"u"]))
        return made[:at] + byte + made[at + draw(st.integers(0, 1)) :]
    return made


def same(found: Any, expected: Any) -> bool:
    """Equal, with zeros of the same sign."""
    if isinstance(found, float) and isinstance(expected, float):
        return struct.pack("d", found) == struct.pack("d", expected)
    return type(found) is type(expected) and found == expected


def rows(table: pa.Table) -> Any:
    """Rows as dicts, with texts as bytes: Arrow's reader does not check UTF-8."""
    kinds = [pa.binary() if kind == pa.string() else kind for kind in table.schema.types]
    return table.cast(pa.schema(list(zip(table.column_names, kinds, strict=True)))).to_pylist()


@examples(100, 400)
@given(st.lists(documents(), max_size=5), st.integers(0, 2))
@example([b'{"d": -0.0}', b'{"d": 1e400}', b'{"d": 4.9e-324}', b'{"f": 16777217.0000001}', b'{"f": 1e-46}'], 0)
@example([b'{"i64": 9223372036854775808}', b'{"i64": 01}', b'{"i8": 128}', b'{"i8": -0}', b'{"i8": 1.0}'], 0)
@example([b'{"t": "\\ud83d\\ude00"}', b'{"t": "\\ud83d"}', b'{"t": "\\u0000"}', b'{"t": "\\x"}', b'{"t": "a\tb"}'], 0)
@example([b'{"t": "\x80", "i8": 1}', b'{"i8": 1, "t": "\xed\xa0\x80"}', b'{"\xc0": 1}'], 0)
@example([b'{"": 1e309}', b'{"": 1e308}', b'{"": -0e999}', b'{"": 1e-400}', b'{"": %s}' % (b"9" * 400)], 0)
@example([b'{"": 0.%s}' % (b"0" * 400), b'{"": [{"": 12e307}]}', b'{"": 1.5e308}', b'{"": 0.0001e312}'], 0)
@example([b'{"t": "a", "t": "b"}', b'{"t": 1}', b'{"t": null}', b"{}", b" {}", b"{} ", b"{}{}", b"[]", b""], 0)
def test_rows_are_those_of_arrows_reader(values: list[bytes | None], first: int) -> None:
    array = pa.array([None] * first + values, pa.binary()).slice(first)
    found, bad = parse_json(array, SCHEMA)
    expected, expected_bad = _parse_any(array, SCHEMA)
    assert bad == expected_bad
    assert found.schema == expected.schema
    for row, other in zip(rows(found), rows(expected), strict=True):
        assert all(same(value, other[name]) for name, value in row.items()), (row, other)


@pytest.mark.parametrize(
    ("value", "row"),
    [
        (b"{}", {}),
        (b'{ "t" : "a" ,\n"i64" : 5 }\n', {"t": "a", "i64": 5}),
        (b'{"i64":-999999999999999999,"i8":-128,"b":true}', {"i64": -(10**18) + 1, "i8": -128, "b": True}),
        (b'{"d":0.1,"f":0.1}', {"d": 0.1, "f": struct.unpack("f", struct.pack("f", 0.1))[0]}),
        (b'{"d":0.84442185152504811e-7}', {"d": 0.84442185152504811e-7}),
        (b'{"d":5,"f":-2E3,"t":null}', {"d": 5.0, "f": -2000.0}),
        ('{"t":"é€😀\\u00e9\\ud83d\\ude00\\n\\"/"}'.encode(), {"t": 'é€😀é😀\n"/'}),
        ('{"a é":"x"}'.encode(), {"a é": "x"}),
        (b'{"other":{"x":[1,{"y":null}],"z":"}"},"b":false}', {"b": False}),
        (None, {}),
    ],
)
def test_what_is_common_is_not_left(value: bytes | None, row: dict[str, Any]) -> None:
    """A reader that leaves everything to the other one would also give the right rows."""
    plain = parse_plain(pa.array([value], pa.binary()), SCHEMA)
    assert plain is not None
    assert plain[1] == []
    assert plain[0].to_pylist() == [dict.fromkeys(SCHEMA.names) | row]


def test_the_texts_of_a_column_may_be_longer_than_what_was_reserved() -> None:
    values = pa.array(
        [json.dumps({"t": "x" * n, "a é": "é" * (n % 7)}, ensure_ascii=False).encode() for n in range(500)]
    )
    plain = parse_plain(values, SCHEMA)
    assert plain is not None
    assert plain[1] == []
    plain[0].validate(full=True)
    assert plain[0]["t"].to_pylist() == ["x" * n for n in range(500)]
    assert plain[0]["a é"].to_pylist() == ["é" * (n % 7) for n in range(500)]


def test_deep_nesting_is_left_to_others_and_does_no_harm() -> None:
    deep = b'{"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    plain = parse_plain(pa.array([b'{"x":[[[{}]]],"t":"a"}', deep]), SCHEMA)
    assert plain is not None
    assert plain[0]["t"].to_pylist() == ["a", None]
    assert plain[1] == [1]


def test_other_types_and_a_reader_that_is_not_built(monkeypatch: pytest.MonkeyPatch) -> None:
    values = pa.array([b'{"n": [1], "t": "a"}'])
    nested = parse_ddl("n ARRAY<INT>, t STRING")
    assert parse_plain(values, nested) is None
    assert parse_json(values, nested)[0].to_pylist() == [{"n": [1], "t": "a"}]
    monkeypatch.setattr(plain_json, "_parser", lambda: None)
    assert parse_plain(values, SCHEMA) is None
    assert parse_json(values, SCHEMA)[0]["t"].to_pylist() == ["a"]


DIGITS = st.text("0123456789", min_size=1, max_size=120)
ZEROS = st.integers(0, 400).map(lambda count: "0" * count)


@st.composite
def decimals(draw: st.DrawFn) -> str:
    """Numbers in any JSON form, with zeros and exponents that cancel out."""
    whole = draw(st.sampled_from(["0", "1", "9"]) | DIGITS.map(lambda digits: str(int(digits))))
    if draw(st.booleans()):
        whole += draw(ZEROS)
        whole = whole.lstrip("0") or "0"
    fraction = "." + draw(ZEROS) + draw(DIGITS) if draw(st.booleans()) else ""
    power = draw(st.integers(-450, 450) | st.integers(-(10**14), 10**14) | st.none())
    spelled = (
        "" if power is None else draw(st.sampled_from("eE")) + (f"{power:+d}" if draw(st.booleans()) else f"{power}")
    )
    return draw(st.sampled_from(["", "-"])) + whole + fraction + spelled


@examples(300, 1500)
@given(decimals())
@example("0." + "0" * 70 + "1e50")
@example("0." + "0" * 63 + "1e64")
@example("-0." + "0" * 64 + "123e+70")
@example("1" + "0" * 70 + "e-80")
@example("0.0000000000000000000001e100001")
@example("1e4294967296")
@example("1e-4294967295")
@example("1e18446744073709551617")
def test_a_number_is_the_double_that_python_reads_or_is_left(text: str) -> None:
    schema = parse_ddl("d DOUBLE")
    values = pa.array([b'{"d":%s}' % text.encode()], pa.binary())
    plain = parse_plain(values, schema)
    assert plain is not None
    if not plain[1]:
        assert same(plain[0]["d"].to_pylist()[0], float(text))
    found, bad = parse_json(values, schema)
    if not bad:
        assert same(found["d"].to_pylist()[0], float(text))


def test_a_float_is_the_one_next_to_the_number() -> None:
    schema = parse_ddl("f FLOAT")
    plain = parse_plain(pa.array([b'{"f":0.%s1e50}' % (b"0" * 70)]), schema)
    assert plain is not None
    assert plain[0]["f"].to_pylist() == [struct.unpack("f", struct.pack("f", 1e-21))[0]]
    assert plain[1] == []
