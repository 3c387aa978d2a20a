"""Line protocol: the examples of InfluxDB's documentation, round trips of any point, and hostile bytes."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.connect.influx.lines import BadPointError, Point, parse, point_of
from barnabas.connect.influx.points import Naming, record_of


def fields(point: Point) -> dict[str, object]:
    return {name: json.loads(bytes(v)) if isinstance(v, msgspec.Raw) else v for name, v in point.fields.items()}


@pytest.mark.parametrize(
    ("text", "point"),
    [
        ('m,t1=v1,t2=v2 f1="v" 1556813561098000000', ("m", {"t1": "v1", "t2": "v2"}, {"f1": "v"}, 1556813561098000000)),
        (r"my\ m\,x,tag\ 1=a\=b\,c fi\ eld=t", ("my m,x", {"tag 1": "a=b,c"}, {"fi eld": True}, None)),
        (r'm f="say \"x\" \\ y, z=1 2",g=F -5', ("m", {}, {"f": r'say "x" \ y, z=1 2', "g": False}, -5)),
        (r"m,path=C:\dir f=true", ("m", {"path": r"C:\dir"}, {"f": True}, None)),
        ("m=x,t=1 f=T", ("m=x", {"t": "1"}, {"f": True}, None)),
        ('m f="two\nlines"', ("m", {}, {"f": "two\nlines"}, None)),
        ("m  f=T  7 ", ("m", {}, {"f": True}, 7)),
    ],
)
def test_points(text: str, point: tuple[object, ...]) -> None:
    assert tuple(point_of(text)) == point


def test_numbers_keep_their_digits() -> None:
    text = "m i=9223372036854775807i,u=18446744073709551615u,f=0.1,g=1.,h=.5,e=1E10,n=-1.5e-300,p=+2,z=007"
    assert fields(point_of(text)) == {
        "i": 2**63 - 1,
        "u": 2**64 - 1,
        "f": 0.1,
        "g": 1.0,
        "h": 0.5,
        "e": 1e10,
        "n": -1.5e-300,
        "p": 2.0,
        "z": 7.0,
    }


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("m", "no fields"),
        ("m ", "no fields"),
        (",t=1 f=1", "a measurement"),
        ("m,t f=1", "expected ="),
        ("m,t= f=1", "the value of the tag t"),
        ("m,=1 f=1", "the name of a tag"),
        ("m f", "expected ="),
        ("m f=", "the value of f"),
        ('m f="x', "has no end"),
        ("m f=1 x", "is not a time"),
        ("m f=1 1 2", "is not a time"),
        ("m f=1 9223372036854775808", "out of range"),
        ("m f=1 " + "9" * 5000, "out of range"),
        ("m f=9223372036854775808i", "is not a value"),
        ("m f=-1u", "is not a value"),
        ("m f=NaN", "is not a value"),
        ("m f=1e999", "is not a value"),
        ("m f=" + "9" * 5000, "is not a value"),
        ("m f=abc", "is not a value"),
        ("m,t=1,t=2 f=1", "two tags t"),
        ("m f=1,f=2", "two fields f"),
        ("m,t=1 t=2", "of a tag and of a field"),
        ('m f="' + "x" * 65537 + '"', "more than 64 KiB"),
    ],
)
def test_what_is_no_point_is_told(text: str, why: str) -> None:
    with pytest.raises(BadPointError, match=why):
        point_of(text)


_name = st.text(st.characters(exclude_characters='\n\\"#', exclude_categories=["C", "Z"]), min_size=1, max_size=6)


def escaped(name: str, chars: str) -> str:
    return "".join(f"\\{char}" if char in chars else char for char in name)


@given(
    measurement=_name,
    tags=st.dictionaries(_name, _name, max_size=3),
    values=st.dictionaries(_name, st.integers(-(2**63), 2**63 - 1) | st.booleans() | st.text(max_size=8), min_size=1),
    time=st.none() | st.integers(-(2**63), 2**63 - 1),
)
def test_any_point_comes_back(
    measurement: str, tags: dict[str, str], values: dict[str, int | bool | str], time: int | None
) -> None:
    values = {name: value for name, value in values.items() if name not in tags} or {"only~one~": 1}

    def shown(value: int | bool | str) -> str:
        if isinstance(value, str):
            return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
        return str(value) if isinstance(value, bool) else f"{value}i"

    text = escaped(measurement, ", ")
    text += "".join(f",{escaped(name, ',= ')}={escaped(value, ',= ')}" for name, value in tags.items())
    text += " " + ",".join(f"{escaped(name, ',= ')}={shown(value)}" for name, value in values.items())
    text += "" if time is None else f" {time}"
    found = point_of(text)
    assert (found.measurement, found.tags, fields(found), found.time) == (measurement, tags, values, time)


@given(st.binary(max_size=200))
def test_any_bytes_are_points_or_told(data: bytes) -> None:
    for line in parse(data):
        assert (line.point is None) == bool(line.why)


def test_a_bad_line_spoils_only_itself() -> None:
    data = b'# comment\r\na f=1\r\n\n  \nb\nc f="x\ny",g=1 1\nd f="open\ne f=2\n\xff f=1'
    found = {line.number: line.point.measurement if line.point else line.why for line in parse(data)}
    assert found == {
        2: "a",
        5: "there are no fields",
        6: "c",
        8: "the text of f has no end",
        9: "e",
        10: "it is not UTF-8",
    }


@pytest.mark.parametrize(("precision", "unit"), [("ms", 10**6), ("s", 10**9), ("h", 3600 * 10**9), ("us", 1000)])
def test_times_have_units(precision: str, unit: int) -> None:
    (line,) = parse(b"m f=1 7", precision)
    assert line.point is not None
    assert line.point.time == 7 * unit


def test_an_unknown_unit_is_refused() -> None:
    with pytest.raises(BadPointError, match="precision 'days'"):
        parse(b"", "days")


def test_a_record_has_the_series_as_key_and_columns_as_value() -> None:
    point = Point("cpu", {"host": "b", "dc": "a"}, {"use": msgspec.Raw(b"0.10"), "up": True}, 1_704_067_200_123_456_789)
    record = record_of(point, 0, with_measurement=True)
    assert record.key == b"cpu,dc=a,host=b"
    assert record.value == (
        b'{"time":"2024-01-01T00:00:00.123456Z","measurement":"cpu","host":"b","dc":"a","use":0.10,"up":true}'
    )
    assert record.timestamp == 1_704_067_200_123
    assert record_of(point._replace(time=-1), 0, with_measurement=False).timestamp == 0
    with pytest.raises(BadPointError, match="time is a column of every value"):
        record_of(point._replace(tags={"time": "x"}), 0, with_measurement=False)


def test_topics_are_bounded_and_never_shared() -> None:
    naming = Naming(prefix="", topic="", most=2)
    assert [naming.of("db", "cpu"), naming.of("", "cpu"), naming.of("db", "cpu")] == ["db.cpu", "cpu", "db.cpu"]
    with pytest.raises(BadPointError, match="--max-topics"):
        naming.of("db", "mem")
    naming = Naming(prefix="", topic="", most=10)
    naming.of("a", "b.c")
    with pytest.raises(BadPointError, match="share"):
        naming.of("a.b", "c")
    assert Naming(prefix="x", topic="all", most=1).of("db", "m") == "all"
