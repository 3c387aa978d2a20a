"""Aggregates of groups: count, sum, avg, min and max, with their state over the rows so far.

Each follows Spark's: a sum of whole numbers is BIGINT and wraps, a sum of DOUBLE and every average add DOUBLEs. The
order in which Spark adds them depends on its tasks and its plan, so the last digits of Spark's own answer may vary. An
answer is given here only if no order could change its first nine digits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, Protocol

import pyarrow as pa

from barnabas.streams.select.errors import NeedsSpark
from barnabas.streams.select.syntax import Call
from barnabas.streams.select.typed import Typed, Values, group_key, is_known, sort_key, wrapped

NAMES = frozenset({"count", "sum", "avg", "mean", "min", "max"})
_BITS = 64
#: The error of one addition of DOUBLEs, relative to its result, and the tolerated error of a sum.
_ROUNDING, _MOST_OFF = 2.0**-53, 1e-9
#: The most that aggregates may remember in all groups together: bytes of values, plus Python's overhead for each.
MOST_BYTES, _EACH = 64 << 20, 64


class State(Protocol):
    """The current state of an aggregate in one group."""

    def add(self, values: Iterable[Any]) -> None:
        """Add rows. Raises NeedsSpark if there is too much to remember."""

    def result(self) -> Any:
        """The result for all rows so far."""


class Room:
    """How much more may be remembered."""

    def __init__(self, size: int = MOST_BYTES) -> None:
        self._left = size

    def take(self, values: Iterable[Any]) -> None:
        """Count these as remembered. Raises NeedsSpark."""
        self._left -= sum(_EACH + (len(each) if isinstance(each, str) else 0) for each in values)
        if self._left < 0:
            raise NeedsSpark("it has more different values than are remembered here")

    def give(self, value: Any) -> None:
        """Count one as forgotten."""
        self._left += _EACH + (len(value) if isinstance(value, str) else 0)


class Aggregate(NamedTuple):
    """An aggregate: its argument (None: the rows), the type of its result, and its initial state."""

    of: Typed | None
    kind: pa.DataType
    begin: Callable[[], State]


def aggregate(call: Call, of: Typed | None) -> Aggregate:
    """The aggregate of a call. Raises NeedsSpark if its result would not be certain here."""
    if call.name == "count":
        return _count(call, of)
    if of is None or call.is_distinct:
        raise NeedsSpark(f"{call.name} is not of one expression")
    if call.name in ("min", "max"):
        if not is_known(of.kind):
            raise NeedsSpark(f"{call.name} is of {of.kind}")
        key, room = sort_key(of.kind), Room()
        return Aggregate(of, of.kind, lambda: _Extreme(key, call.name == "max", room))
    if pa.types.is_integer(of.kind) and call.name == "sum":
        return Aggregate(of, pa.int64(), _WholeSum)
    if not pa.types.is_integer(of.kind) and of.kind != pa.float64():
        raise NeedsSpark(f"{call.name} is of {of.kind}")
    return Aggregate(of, pa.float64(), _Sum if call.name == "sum" else _Average)


def _count(call: Call, of: Typed | None) -> Aggregate:
    if not call.is_distinct:
        return Aggregate(of, pa.int64(), _Count)
    if of is None or not is_known(of.kind):
        raise NeedsSpark("what is DISTINCT has a type of Spark's")
    key, room = group_key(of.kind), Room()
    return Aggregate(of, pa.int64(), lambda: _Distinct(key, room))


class _Count:
    def __init__(self) -> None:
        self._count = 0

    def add(self, values: Iterable[Any]) -> None:
        self._count += sum(1 for each in values if each is not None)

    def result(self) -> int:
        return self._count


class _Distinct:
    def __init__(self, key: Callable[[Any], Any], room: Room) -> None:
        self._key, self._room, self._seen = key, room, set[Any]()

    def add(self, values: Iterable[Any]) -> None:
        # To Python, two NaNs are not equal, but a set recognizes the same object.
        new = {self._key(each) for each in values if each is not None} - self._seen
        self._room.take(new)
        self._seen |= new

    def result(self) -> int:
        return len(self._seen)


class _WholeSum:
    def __init__(self) -> None:
        self._sum: int | None = None

    def add(self, values: Iterable[Any]) -> None:
        there = [each for each in values if each is not None]
        if there:
            self._sum = wrapped((self._sum or 0) + sum(there), _BITS)

    def result(self) -> int | None:
        return self._sum


class _Sum:
    def __init__(self) -> None:
        self._sum, self._size, self._count = 0.0, 0.0, 0
        self._is_whole = True  # integers up to 2^53 are added without rounding

    def add(self, values: Iterable[Any]) -> None:
        for each in values:  # one by one: newer versions of Python compute `sum` differently
            if each is not None:
                self._sum += each
                self._size += abs(each)
                self._is_whole = self._is_whole and float(each).is_integer()
                self._count += 1

    def result(self) -> float | None:
        """The result. Raises NeedsSpark."""
        is_exact = self._is_whole and self._size <= 1 << 53
        is_off = self._size * self._count * _ROUNDING > abs(self._sum) * _MOST_OFF or not math.isfinite(self._size)
        if is_off and not is_exact:
            raise NeedsSpark("the order in which it adds DOUBLEs decides")
        return self._of_sum(self._sum) if self._count else None

    def _of_sum(self, found: float) -> float:
        return found


class _Average(_Sum):
    def _of_sum(self, found: float) -> float:
        return found / self._count


class _Extreme:
    def __init__(self, key: Callable[[Any], Any], is_max: bool, room: Room) -> None:
        self._key, self._room = key, room
        self._choose: Callable[..., Any] = max if is_max else min
        self._found: Any = None

    def add(self, values: Iterable[Any]) -> None:
        there: Values = [each for each in values if each is not None]
        if not there:
            return
        if self._found is not None:
            there.insert(0, self._found)
        found = self._choose(there, key=self._key)
        if found is not self._found:
            if self._found is not None:
                self._room.give(self._found)
            self._room.take([found])
            self._found = found

    def result(self) -> Any:
        return self._found
