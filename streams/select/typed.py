"""Typed expressions, evaluated over many rows at once.

Values are plain Python values: None is null, times are microseconds and days since 1970. So each operator is a few
lines that can be compared with Spark's: whole numbers wrap at the width of their type, division by zero is null, NaN is
equal to itself and larger than all else (Spark's non-ANSI mode, which all sessions of the project use).

Invariant: a type or a value that is uncertain raises NeedsSpark.
"""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import pyarrow as pa

from barnabas.streams.select import syntax
from barnabas.streams.select.errors import NeedsSpark
from barnabas.streams.select.syntax import Call, Column, Expression, Literal

#: A column of values.
Values = list[Any]
TIME = pa.timestamp("us", tz="UTC")
_BOOL, _TEXT, _DOUBLE = pa.bool_(), pa.string(), pa.float64()
_WHOLE = (pa.int8(), pa.int16(), pa.int32(), pa.int64())
_LITERALS = {syntax.INT: pa.int32(), syntax.BIGINT: pa.int64(), syntax.DOUBLE: _DOUBLE}
_CASTS = {
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "integer": pa.int32(),
    "bigint": pa.int64(),
    "long": pa.int64(),
    "double": _DOUBLE,
    "string": _TEXT,
}
_DAY = re.compile(r"(\d{4})-(\d\d)-(\d\d)(?:[ T](\d\d):(\d\d):(\d\d)(?:\.(\d{1,6}))?Z?)?")
_DIGITS = re.compile(r"-?\d{1,18}")
_PLAIN_DOUBLE = re.compile(r"-?\d{1,15}(?:\.\d{1,15})?")
_EPOCH = datetime.datetime(1970, 1, 1)


class Rows(Protocol):
    """Rows with their columns as values."""

    def values(self, name: str) -> Values:
        """A column. Raises NeedsSpark for texts that are not UTF-8."""

    def __len__(self) -> int: ...


class Typed(NamedTuple):
    """An expression: the type of its values, the function that makes them, and the columns that it needs."""

    kind: pa.DataType
    values: Callable[[Rows], Values]
    columns: frozenset[str]
    #: Its only value, if it is a literal.
    constant: Any = None


#: Returns the type of a column or an aggregate; returns None for an operator.
Resolve = Callable[[Expression], Typed | None]


def typed(expression: Expression, resolve: Resolve) -> Typed:
    """Type an expression over what `resolve` knows. Raises NeedsSpark."""
    found = resolve(expression)
    if found is not None:
        return found
    if isinstance(expression, Literal):
        return _literal(expression)
    if isinstance(expression, Column):
        raise NeedsSpark(f"{expression.name} is not a column that is known without Spark")
    if expression.name == "timestamp literal":
        return _constant(TIME, _moment(expression.args[0]))
    if expression.name not in _MAKERS or expression.is_distinct:
        what = "function" if expression.name.isidentifier() else "operator"
        raise NeedsSpark(f"the {what} {expression.name} is Spark's")
    if _is_compared_with_text(expression):
        expression = _with_moments(expression, resolve)
    args = [typed(each, resolve) for each in expression.args]
    return _MAKERS[expression.name](args)


def _check_is(kind: pa.DataType, found: Typed) -> None:
    """Raises NeedsSpark if the type is another one."""
    if found.kind != kind:
        raise NeedsSpark(f"it needs a cast from {found.kind} to {kind}")


def is_known(kind: pa.DataType) -> bool:
    """Whether values of a type can be computed with, compared and grouped by here."""
    return kind in (*_WHOLE, _BOOL, _TEXT, _DOUBLE, TIME)


def sort_key(kind: pa.DataType) -> Callable[[Any], Any]:
    """The sort key for values that are not null: NaN is the largest, and both zeros are equal."""
    return _double_key if kind == _DOUBLE else _itself


def group_key(kind: pa.DataType) -> Callable[[Any], Any]:
    """The key that puts equal values in one group: all NaNs are equal, and so are both zeros."""
    return _normal if kind == _DOUBLE else _itself


def wrapped(value: int, bits: int) -> int:
    """An integer wrapped to this many bits, as Java does on overflow."""
    half = 1 << (bits - 1)
    return (value + half & (1 << bits) - 1) - half


def _itself(value: Any) -> Any:
    return value


def _double_key(value: float) -> tuple[bool, float]:
    return (True, 0.0) if value != value else (False, value)


def _normal(value: float | None) -> Any:
    if value is None:
        return None
    return math.nan if value != value else value + 0.0


# --- literals ---------------------------------------------------------------------------------------------------------


def _constant(kind: pa.DataType, value: Any) -> Typed:
    return Typed(kind, lambda rows: [value] * len(rows), frozenset(), value)


def _literal(literal: Literal) -> Typed:
    if literal.kind == syntax.TEXT:
        return _constant(_TEXT, literal.value)
    if literal.kind == syntax.TRUTH:
        return _constant(_BOOL, literal.value)
    if literal.kind == syntax.DECIMAL:
        return _constant(pa.decimal128(1, 1), literal.value)  # only used beside a DOUBLE, which it becomes
    return _constant(_LITERALS[literal.kind], literal.value)


def _is_compared_with_text(call: Call) -> bool:
    return call.name in ("=", "<", "<=", ">", ">=", "between", "in") and any(
        isinstance(each, Literal) and each.kind == syntax.TEXT for each in call.args
    )


def _with_moments(call: Call, resolve: Resolve) -> Call:
    """Convert a text that is compared with a time into a time."""
    kinds = {typed(each, resolve).kind for each in call.args if not isinstance(each, Literal)}
    if kinds != {TIME}:
        return call
    args = tuple(Call("timestamp literal", (each,)) if isinstance(each, Literal) else each for each in call.args)
    return Call(call.name, args)


def _moment(text: Expression) -> int:
    """Microseconds since 1970 for a text that Spark reads as the same time."""
    found = _DAY.fullmatch(str(text.value)) if isinstance(text, Literal) else None
    if found is None:
        raise NeedsSpark("a time in it is not written as YYYY-MM-DD or YYYY-MM-DD HH:MM:SS")
    year, month, day, hour, minute, second, fraction = found.groups(default="0")
    try:
        moment = datetime.datetime(int(year), int(month), int(day), int(hour), int(minute), int(second))
    except ValueError:
        raise NeedsSpark("a time in it is none") from None
    return (moment - _EPOCH) // datetime.timedelta(microseconds=1) + int(fraction.ljust(6, "0"))


# --- operators --------------------------------------------------------------------------------------------------------


def _made(kind: pa.DataType, args: Sequence[Typed], of_one_row: Callable[..., Any]) -> Typed:
    """An expression that is null if any argument is null."""
    columns = frozenset[str]().union(*(each.columns for each in args))

    def one(rows: Rows) -> Values:
        return [None if x is None else of_one_row(x) for x in args[0].values(rows)]

    def two(rows: Rows) -> Values:
        pairs = zip(args[0].values(rows), args[1].values(rows), strict=True)
        return [None if x is None or y is None else of_one_row(x, y) for x, y in pairs]

    def more(rows: Rows) -> Values:
        return [None if None in each else of_one_row(*each) for each in _zipped(args, rows)]

    return Typed(kind, {1: one, 2: two}.get(len(args), more), columns)


def _made_of_nulls(kind: pa.DataType, args: Sequence[Typed], of_one_row: Callable[..., Any]) -> Typed:
    """An expression that may have a value if an argument is null."""
    columns = frozenset[str]().union(*(each.columns for each in args))
    return Typed(kind, lambda rows: [of_one_row(*each) for each in _zipped(args, rows)], columns)


def _zipped(args: Sequence[Typed], rows: Rows) -> Iterator[tuple[Any, ...]]:
    return zip(*(each.values(rows) for each in args), strict=True)


def _as_double(found: Typed) -> Typed:
    if found.kind == _DOUBLE:
        return found
    if found.kind not in _WHOLE and (found.constant is None or not pa.types.is_decimal(found.kind)):
        raise NeedsSpark(f"it casts {found.kind} to double")
    if found.constant is not None:
        return _constant(_DOUBLE, float(found.constant))
    return _made(_DOUBLE, [found], float)


def _are_whole(args: Sequence[Typed]) -> bool:
    return all(each.kind in _WHOLE for each in args)


def _doubles(args: Sequence[Typed]) -> list[Typed]:
    """The arguments, one of which is a DOUBLE, all as DOUBLE."""
    if not any(each.kind == _DOUBLE for each in args):
        raise NeedsSpark(f"it computes with {' and '.join(str(each.kind) for each in args)}")
    return [_as_double(each) for each in args]


def _arithmetic(compute: Callable[[Any, Any], Any]) -> Callable[[Sequence[Typed]], Typed]:
    def make(args: Sequence[Typed]) -> Typed:
        if _are_whole(args):
            kind = max((each.kind for each in args), key=lambda each: each.bit_width)
            bits = kind.bit_width
            return _made(kind, args, lambda x, y: wrapped(compute(x, y), bits))
        return _made(_DOUBLE, _doubles(args), compute)

    return make


def _division(args: Sequence[Typed]) -> Typed:
    given = [_as_double(each) for each in args] if _are_whole(args) else _doubles(args)
    return _made(_DOUBLE, given, lambda x, y: None if y == 0 else x / y)


def _remainder(args: Sequence[Typed]) -> Typed:
    """The remainder, which has the sign of the dividend."""
    if _are_whole(args):
        kind = max((each.kind for each in args), key=lambda each: each.bit_width)
        return _made(kind, args, lambda x, y: None if y == 0 else abs(x) % abs(y) * (-1 if x < 0 else 1))
    return _made(_DOUBLE, _doubles(args), lambda x, y: None if y == 0 else _fmod(x, y))


def _fmod(x: float, y: float) -> float:
    return math.nan if math.isinf(x) else math.fmod(x, y)


def _negative(args: Sequence[Typed]) -> Typed:
    (found,) = args
    if found.kind in _WHOLE:
        bits = found.kind.bit_width
        return _made(found.kind, args, lambda x: wrapped(-x, bits))
    return _made(_DOUBLE, _doubles(args), lambda x: -x)


def _absolute(args: Sequence[Typed]) -> Typed:
    (found,) = _exactly(1, args)
    if found.kind in _WHOLE:
        bits = found.kind.bit_width
        return _made(found.kind, args, lambda x: wrapped(abs(x), bits))
    return _made(_DOUBLE, _doubles(args), abs)


# --- conditions -------------------------------------------------------------------------------------------------------


def _comparable(args: Sequence[Typed]) -> tuple[list[Typed], Callable[[Any], Any]]:
    """The arguments in one common type, and the key for comparing their values."""
    kinds = {each.kind for each in args}
    if _are_whole(args):
        return list(args), _itself
    if len(kinds) == 1 and kinds <= {_TEXT, _BOOL, TIME}:
        return list(args), _itself
    if any(each.kind == _DOUBLE for each in args):
        return [_as_double(each) for each in args], _double_key
    raise NeedsSpark(f"it compares {' with '.join(sorted(map(str, kinds)))}")


def _comparison(holds: Callable[[Any, Any], bool]) -> Callable[[Sequence[Typed]], Typed]:
    def make(args: Sequence[Typed]) -> Typed:
        given, key = _comparable(args)
        if key is _itself:
            return _made(_BOOL, given, holds)
        return _made(_BOOL, given, lambda x, y: holds(key(x), key(y)))

    return make


def _between(args: Sequence[Typed]) -> Typed:
    what, lo, hi = args
    least = _comparison(lambda x, y: x >= y)([what, lo])
    most = _comparison(lambda x, y: x <= y)([what, hi])
    return _and([least, most])


def _in(args: Sequence[Typed]) -> Typed:
    given, key = _comparable(args)
    if any(each.constant is None for each in given[1:]):
        raise NeedsSpark("IN has expressions")
    options = {key(each.constant) for each in given[1:]}
    return _made(_BOOL, given[:1], lambda x: key(x) in options)


def _like(args: Sequence[Typed]) -> Typed:
    for each in args:
        _check_is(_TEXT, each)
    pattern = args[1].constant
    if "\\" in pattern or "_" in pattern:
        raise NeedsSpark("LIKE has an escape or _")
    begin, *middle = pattern.split("%")
    if not middle:
        return _made(_BOOL, args[:1], lambda x: x == begin)
    end = middle.pop()

    def matches(text: str) -> bool:
        """Match part by part, each at its first occurrence: one pass over the text."""
        if len(text) < len(begin) + len(end) or not text.startswith(begin) or not text.endswith(end):
            return False
        at, last = len(begin), len(text) - len(end)
        for part in middle:
            at = text.find(part, at, last)
            if at < 0:
                return False
            at += len(part)
        return True

    return _made(_BOOL, args[:1], matches)


def _truths(args: Sequence[Typed]) -> None:
    for each in args:
        _check_is(_BOOL, each)


def _and(args: Sequence[Typed]) -> Typed:
    _truths(args)

    def both(x: bool | None, y: bool | None) -> bool | None:
        if x is False or y is False:
            return False
        return None if x is None or y is None else True

    return _made_of_nulls(_BOOL, args, both)


def _or(args: Sequence[Typed]) -> Typed:
    _truths(args)

    def either(x: bool | None, y: bool | None) -> bool | None:
        if x or y:
            return True
        return None if x is None or y is None else False

    return _made_of_nulls(_BOOL, args, either)


def _not(args: Sequence[Typed]) -> Typed:
    _truths(args)
    return _made(_BOOL, args, lambda x: not x)


def _null(is_null: bool) -> Callable[[Sequence[Typed]], Typed]:
    return lambda args: _made_of_nulls(_BOOL, args, lambda x: (x is None) == is_null)


# --- functions --------------------------------------------------------------------------------------------------------


def _exactly(count: int, args: Sequence[Typed]) -> Sequence[Typed]:
    if len(args) != count:
        raise NeedsSpark(f"a function has {len(args)} arguments")
    return args


def _of_text(kind: pa.DataType, compute: Callable[[str], Any]) -> Callable[[Sequence[Typed]], Typed]:
    def make(args: Sequence[Typed]) -> Typed:
        (found,) = _exactly(1, args)
        _check_is(_TEXT, found)
        return _made(kind, args, compute)

    return make


def _upper(text: str) -> str:
    return _ascii(text).upper()


def _lower(text: str) -> str:
    return _ascii(text).lower()


def _ascii(text: str) -> str:
    if not text.isascii():
        raise NeedsSpark("a text is not ASCII, and its letters have Java's cases")
    return text


def _concat(args: Sequence[Typed]) -> Typed:
    for each in args:
        _check_is(_TEXT, each)
    return _made(_TEXT, args, lambda *texts: "".join(texts))


def _coalesce(args: Sequence[Typed]) -> Typed:
    kinds = {each.kind for each in args}
    if len(kinds) > 1 or not is_known(args[0].kind):
        raise NeedsSpark("coalesce has several types")
    return _made_of_nulls(args[0].kind, args, lambda *found: next((each for each in found if each is not None), None))


def _substring(args: Sequence[Typed]) -> Typed:
    text, begin, length = _exactly(3, args)
    _check_is(_TEXT, text)
    if not isinstance(begin.constant, int) or not isinstance(length.constant, int) or not _are_whole(args[1:]):
        raise NeedsSpark("substring has no plain numbers")
    at, size = begin.constant, length.constant

    def part(whole: str) -> str:
        start = at - 1 if at > 0 else len(whole) + at if at < 0 else 0
        return whole[max(start, 0) : max(start + size, 0)]

    return _made(_TEXT, [text], part)


def _cast(wanted: pa.DataType) -> Callable[[Sequence[Typed]], Typed]:
    def make(args: Sequence[Typed]) -> Typed:
        (found,) = args
        if found.kind == wanted:
            return found
        if found.kind in _WHOLE and wanted in _WHOLE:
            bits = wanted.bit_width
            return _made(wanted, args, lambda x: wrapped(x, bits))
        if found.kind in _WHOLE and wanted == _DOUBLE:
            return _as_double(found)
        if found.kind in _WHOLE and wanted == _TEXT:
            return _made(_TEXT, args, str)
        if found.kind == _BOOL and wanted == _TEXT:
            return _made(_TEXT, args, lambda x: "true" if x else "false")
        if found.kind == _TEXT and wanted in _WHOLE:
            most = 1 << (wanted.bit_width - 1)
            return _made(wanted, args, lambda x: _parsed(x, _DIGITS, int, -most, most - 1))
        if found.kind == _TEXT and wanted == _DOUBLE:
            return _made(_DOUBLE, args, lambda x: _parsed(x, _PLAIN_DOUBLE, float, -math.inf, math.inf))
        raise NeedsSpark(f"it casts {found.kind} to {wanted}")

    return make


def _parsed(text: str, form: re.Pattern[str], parse: Callable[[str], Any], least: Any, most: Any) -> Any:
    if not form.fullmatch(text) or not text.isascii():
        raise NeedsSpark("a text that is cast is not a plain number")
    value = parse(text)
    return value if least <= value <= most else None


_MAKERS: dict[str, Callable[[Sequence[Typed]], Typed]] = {
    "+": _arithmetic(lambda x, y: x + y),
    "-": _arithmetic(lambda x, y: x - y),
    "*": _arithmetic(lambda x, y: x * y),
    "/": _division,
    "%": _remainder,
    "negative": _negative,
    "=": _comparison(lambda x, y: bool(x == y)),
    "<": _comparison(lambda x, y: bool(x < y)),
    "<=": _comparison(lambda x, y: bool(x <= y)),
    ">": _comparison(lambda x, y: bool(x > y)),
    ">=": _comparison(lambda x, y: bool(x >= y)),
    "between": _between,
    "in": _in,
    "like": _like,
    "and": _and,
    "or": _or,
    "not": _not,
    "is null": _null(True),
    "is not null": _null(False),
    "abs": _absolute,
    "length": _of_text(pa.int32(), len),
    "upper": _of_text(_TEXT, _upper),
    "lower": _of_text(_TEXT, _lower),
    "trim": _of_text(_TEXT, lambda text: text.strip(" ")),
    "concat": _concat,
    "coalesce": _coalesce,
    "substring": _substring,
    "substr": _substring,
    **{f"cast {name}": _cast(kind) for name, kind in _CASTS.items()},
}
#: The callable functions, for completion.
FUNCTIONS = frozenset({"abs", "length", "upper", "lower", "trim", "concat", "coalesce", "substring", "substr"})
