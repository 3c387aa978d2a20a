"""A parser for InfluxDB's line protocol.

https://docs.influxdata.com/influxdb/v2/reference/syntax/line-protocol/

cpu,host=a,region=eu usage=0.5,cores=8i 1704067200000000000
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

#: Nanoseconds of the units that `precision` may name, in InfluxDB 1 and 2.
PRECISIONS = {
    "": 1,
    "n": 1,
    "ns": 1,
    "u": 1_000,
    "us": 1_000,
    "ms": 1_000_000,
    "s": 10**9,
    "m": 60 * 10**9,
    "h": 3600 * 10**9,
}
_MIN_NS, _MAX_NS = -(2**63), 2**63 - 1
_INT64, _UINT64 = range(-(2**63), 2**63), range(2**64)
#: InfluxDB's limit for a text.
MAX_TEXT = 64 << 10
_TRUE, _FALSE = frozenset({"t", "T", "true", "True", "TRUE"}), frozenset({"f", "F", "false", "False", "FALSE"})
_FLOAT = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_PLAIN_JSON = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?")
_WHOLE = re.compile(r"[+-]?\d+")
_ESCAPED = re.compile(r"\\([,= ])")
_ESCAPED_MEASUREMENT = re.compile(r"\\([, ])")
# Each part goes up to one of its end characters, unless a backslash stands before it.
_MEASUREMENT = re.compile(r"(?:\\.|[^,\s\\]|\\)+", re.DOTALL)
_NAME = re.compile(r"(?:\\.|[^,=\s\\]|\\)+", re.DOTALL)
_TEXT = re.compile(r'"((?:\\.|[^"\\])*)"', re.DOTALL)
_BARE = re.compile(r"[^,\s]+")

#: A number is kept as its digits.
Value = str | bool | msgspec.Raw


class BadPointError(ValueError):
    """Why a line is not a point."""


class Point(NamedTuple):
    """One line. `time` is in nanoseconds since 1970, or None if the line has none."""

    measurement: str
    tags: dict[str, str]
    fields: dict[str, Value]
    time: int | None


class Line(NamedTuple):
    """A line of the input, and its point or the reason why it is not one."""

    number: int
    point: Point | None
    why: str = ""


def parse(data: bytes, precision: str = "") -> Iterator[Line]:
    """All lines except empty ones and comments. Raises BadPointError at once for an unknown precision."""
    if precision not in PRECISIONS:
        raise BadPointError(f"precision {precision[:20]!r}: expected one of {', '.join(filter(None, PRECISIONS))}")
    return _parse(data, PRECISIONS[precision])


def _parse(data: bytes, unit: int) -> Iterator[Line]:
    for number, raw in _lines(data):
        try:
            text = raw.decode()
        except UnicodeDecodeError:
            yield Line(number, None, "it is not UTF-8")
            continue
        try:
            yield Line(number, point_of(text, unit))
        except BadPointError as error:
            yield Line(number, None, str(error))


def _lines(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Lines with their numbers. A quoted text may contain line breaks, which then belong to the line."""
    waiting: list[bytes] = []
    begun = 0
    for number, raw in enumerate(data.split(b"\n"), 1):
        if not waiting:
            begun = number
            if not raw.strip() or raw.lstrip().startswith(b"#"):
                continue
        quotes = raw.count(b'"') - raw.count(b'\\"')
        if waiting:
            waiting.append(raw)
            if quotes % 2:
                yield begun, b"\n".join(waiting).strip()
                waiting = []
        elif quotes % 2:
            waiting.append(raw)
        else:
            yield begun, raw.strip()
    # An unclosed quote spoils only its own line, not the lines after it.
    for number, raw in enumerate(waiting, begun):
        if raw.strip():
            yield number, raw.strip()


def point_of(text: str, unit: int = 1) -> Point:
    """One line, whose time is in units of `unit` nanoseconds. Raises BadPointError."""
    measurement, at = _taken(_MEASUREMENT, text, 0, "a measurement")
    tags: dict[str, str] = {}
    while at < len(text) and text[at] == ",":
        name, at = _taken(_NAME, text, at + 1, "the name of a tag")
        at = _equals(text, at)
        value, at = _taken(_NAME, text, at, f"the value of the tag {name}")
        _put(tags, _unescaped(name), _unescaped(value), "tag")
    at = _space(text, at)
    fields: dict[str, Value] = {}
    while True:
        name, at = _taken(_NAME, text, at, "the name of a field")
        at = _equals(text, at)
        field, at = _value(text, at, name)
        name = _unescaped(name)
        if name in tags:
            raise BadPointError(f"{name[:60]} is the name of a tag and of a field")
        _put(fields, name, field, "field")
        if at >= len(text) or text[at] != ",":
            break
        at += 1
    rest = text[at:].strip()
    if rest and not _WHOLE.fullmatch(rest):
        raise BadPointError(f"{rest[:40]!r} is not a time")
    time = int(rest[:40]) * unit if rest else None
    if time is not None and not _MIN_NS <= time <= _MAX_NS:
        raise BadPointError(f"the time {rest[:40]} is out of range: is the precision right?")
    return Point(_ESCAPED_MEASUREMENT.sub(r"\1", measurement), tags, fields, time)


def _taken(pattern: re.Pattern[str], text: str, at: int, what: str) -> tuple[str, int]:
    found = pattern.match(text, at)
    if found is None:
        raise BadPointError(f"expected {what} at {text[at : at + 30]!r}")
    return found[0], found.end()


def _equals(text: str, at: int) -> int:
    if at >= len(text) or text[at] != "=":
        raise BadPointError(f"expected = at {text[at : at + 30]!r}")
    return at + 1


def _space(text: str, at: int) -> int:
    begun = at
    while at < len(text) and text[at] == " ":
        at += 1
    if at == begun or at >= len(text):
        raise BadPointError("there are no fields")
    return at


def _put(found: dict[str, Value] | dict[str, str], name: str, value: Value, what: str) -> None:
    if name in found:
        raise BadPointError(f"there are two {what}s {name[:60]}")
    found[name] = value  # type: ignore[assignment]


def _value(text: str, at: int, name: str) -> tuple[Value, int]:
    if text.startswith('"', at):
        found = _TEXT.match(text, at)
        if found is None:
            raise BadPointError(f"the text of {name[:60]} has no end")
        if len(found[1]) > MAX_TEXT:
            raise BadPointError(f"the text of {name[:60]} has more than {MAX_TEXT >> 10} KiB")
        return found[1].replace('\\"', '"').replace("\\\\", "\\"), found.end()
    bare, at = _taken(_BARE, text, at, f"the value of {name[:60]}")
    if bare in _TRUE or bare in _FALSE:
        return bare in _TRUE, at
    if bare[-1] in "iu" and len(bare) < 30 and _WHOLE.fullmatch(bare[:-1]):
        whole = int(bare[:-1])
        if whole in (_INT64 if bare[-1] == "i" else _UINT64):
            return msgspec.Raw(b"%d" % whole), at
    elif len(bare) < 400 and _FLOAT.fullmatch(bare):
        number = float(bare)
        if math.isfinite(number):
            return msgspec.Raw((bare if _PLAIN_JSON.fullmatch(bare) else repr(number)).encode()), at
    raise BadPointError(f"{bare[:40]!r} is not a value (field {name[:60]})")


def _unescaped(name: str) -> str:
    return _ESCAPED.sub(r"\1", name) if "\\" in name else name
