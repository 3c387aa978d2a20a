"""The aggregates of streams that share a query: the state has the same columns for all of them.

Spark fixes the columns of a query's state when the query is first started. So a query has slots, each a Spark aggregate
over a type, such as a sum of doubles. A stream uses some of the slots and puts nothing into the others. Its own
aggregates are computed from the slots' results:

    avg(temp)      sum(double) and count        max(n), n INT     max(bigint), cast to int

Invariant: a stream's results are those of aggregates over its own types, whatever the slots' types are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
from pyspark.sql import Column
from pyspark.sql import functions as F

from barnabas.streams.windows.stages import Call

_INTEGRAL = ("tinyint", "smallint", "int", "bigint")
_FLOATING = ("float", "double")
_DOUBLE, _LONG, _BOOLEAN = "double", "bigint", "boolean"
#: Aggregates whose arguments Spark casts to double.
_OF_DOUBLES = frozenset(
    """
    stddev stddev_samp stddev_pop std variance var_samp var_pop skewness kurtosis corr covar_pop covar_samp
    """.split()  # noqa: SIM905
)
_ORDERED = ("first", "last")
#: `total` counts by summing, because a row may stand for many records (panes.py).
_LIGHT_ONES = ("count", "total", "sum", "min", "max")


class Slot(msgspec.Struct, frozen=True):
    """An aggregate over columns of these types, followed by literals."""

    function: str
    kinds: tuple[str, ...]
    literals: tuple[float, ...] = ()

    @property
    def is_light(self) -> bool:
        """Whether Spark keeps it in a hash table: its buffer has a fixed size. Others make Spark sort the rows."""
        return self.function in _LIGHT_ONES and self.kinds in ((_DOUBLE,), (_LONG,), (_BOOLEAN,))


#: The slot that counts rows, and its replacement in newly started queries. The state of an older query has the first
#: one, whose type in the state differs.
COUNT, TOTAL = Slot("count", (_BOOLEAN,)), Slot("total", (_LONG,))


def _some(*of: tuple[str, str, int]) -> Counter[Slot]:
    return Counter({Slot(function, (kind,)): number for function, kind, number in of})


#: A query has at least these slots, so that a later stream finds its own: an unused one costs 8 bytes of a row.
_LIGHT = _some(
    ("count", _BOOLEAN, 3),
    ("sum", _DOUBLE, 2),
    ("sum", _LONG, 1),
    ("min", _DOUBLE, 2),
    ("max", _DOUBLE, 2),
    ("min", _LONG, 1),
    ("max", _LONG, 1),
)
#: A query that sorts anyway has these, too.
_ALL = _LIGHT + _some(
    ("first", _DOUBLE, 2),
    ("last", _DOUBLE, 2),
    ("first", _LONG, 1),
    ("last", _LONG, 1),
    ("first", "string", 1),
    ("last", "string", 1),
    ("min", "string", 1),
    ("max", "string", 1),
)


class Input(NamedTuple):
    """What a stream passes to a slot."""

    slot: Slot
    columns: tuple[Column, ...]
    of: tuple[str, ...]  # the names of the inputs: two Inputs with the same slot and names are the same


Result = Callable[[Mapping[tuple[Slot, tuple[str, ...]], Column]], Column]


class Needs(NamedTuple):
    """What a stream needs: each input once, and how its calls' results are made from the slots' results."""

    inputs: tuple[Input, ...]
    results: tuple[tuple[str, Result], ...]

    @property
    def slots(self) -> Counter[Slot]:
        """How many of each slot are needed."""
        return Counter(each.slot for each in self.inputs)


def needs_of(calls: Iterable[Call], inputs: Mapping[str, tuple[Column, str]]) -> Needs:
    """The slots for a stream's calls. `inputs` are the calls' columns and their types."""
    made: dict[tuple[Slot, tuple[str, ...]], Input] = {}
    results = []
    for call in calls:
        columns = [inputs[name][0] for name in call.inputs]
        kinds = [inputs[name][1] for name in call.inputs]
        found, result = _parts(call, columns, kinds)
        for each in found:
            made.setdefault((each.slot, each.of), each)
        results.append((call.column, result))
    return Needs(tuple(made.values()), tuple(results))


def slots_for(needs: Counter[Slot]) -> list[Slot]:
    """The slots of a new query for a stream that needs these."""
    light = is_light(needs)
    found = (needs | (_LIGHT if light else _ALL)).elements()
    return sorted((TOTAL if light and slot == COUNT else slot for slot in found), key=msgspec.json.encode)


def is_light(slots: Iterable[Slot]) -> bool:
    """Whether Spark keeps all of them in a hash table."""
    return all(slot.is_light for slot in slots)


def fits(needs: Counter[Slot], slots: Sequence[Slot]) -> bool:
    """Whether a query's slots suffice for a stream that needs these; one that needs no sorting takes no sorting one."""
    return needs <= Counter(map(_serves, slots)) and is_light(needs) == is_light(slots)


def _serves(slot: Slot) -> Slot:
    """The need that a slot serves."""
    return COUNT if slot == TOTAL else slot


def places(needs: Needs, slots: Sequence[Slot]) -> dict[tuple[Slot, tuple[str, ...]], int]:
    """Which of the query's slots a stream uses for each of its inputs."""
    free = list(enumerate(slots))
    found = {}
    for each in needs.inputs:
        at = next(entry for entry in free if _serves(entry[1]) == each.slot)
        free.remove(at)
        found[each.slot, each.of] = at[0]
    return found


def aggregate(slot: Slot, columns: Sequence[Column]) -> Column:
    """The aggregate of a slot over its columns, which are null if no stream passes anything."""
    if slot == TOTAL:
        return F.coalesce(F.sum(columns[0]), F.lit(0))
    if slot.function in _ORDERED:
        function = F.min_by if slot.function == "first" else F.max_by
        return function(columns[0], F.when(columns[0].isNotNull(), F.struct("__at", "__partition", "__offset")))
    named: Callable[..., Column] = _NAMES.get(slot.function) or getattr(F, slot.function)
    return named(*columns, *(F.lit(one) for one in slot.literals))


_NAMES: dict[str, Callable[..., Column]] = {
    "std": F.stddev,
    "variance": F.var_samp,
    "every": F.bool_and,
    "any": F.bool_or,
    "some": F.bool_or,
    "approx_percentile": F.percentile_approx,
}


def _parts(call: Call, columns: list[Column], kinds: list[str]) -> tuple[list[Input], Result]:
    """The inputs of a call, and how its result is made from theirs."""
    function, names, kind = call.function, call.inputs, kinds[0]
    value = columns[0]
    if function in ("count", "count_if"):
        counted = _counted(value if function == "count_if" else value.isNotNull(), function, names)
        return [counted], _just(counted)
    if function in ("avg", "mean") and not kind.startswith(("decimal", "interval")):
        total, count = _input("sum", _DOUBLE, value, names), _counted(value.cast(_DOUBLE).isNotNull(), "double", names)
        return [total, count], lambda of: of[_key(total)] / of[_key(count)]
    if function == "sum" and not kind.startswith(("decimal", "interval")):
        total = _input("sum", _LONG if kind in _INTEGRAL else _DOUBLE, value, names)
        return [total], _just(total)
    if function == "spread":
        least, most = (_input(each, _wide(kind), value, names) for each in ("min", "max"))
        return [least, most], lambda of: of[_key(most)].cast(kind) - of[_key(least)].cast(kind)
    if function in ("min", "max", *_ORDERED):
        kept = _input(function, _wide(kind), value, names)
        return [kept], lambda of: of[_key(kept)].cast(kind) if kept.slot.kinds != (kind,) else of[_key(kept)]
    wanted = tuple(_DOUBLE if function in _OF_DOUBLES else each for each in kinds)
    slot = Slot(function, wanted, call.literals)
    other = Input(slot, tuple(c.cast(k) if k != had else c for c, k, had in zip(columns, wanted, kinds)), names)  # noqa: B905
    return [other], _just(other)


def _input(function: str, kind: str, value: Column, names: tuple[str, ...]) -> Input:
    return Input(Slot(function, (kind,)), (value.cast(kind),), names)


def _counted(condition: Column, of: str, names: tuple[str, ...]) -> Input:
    """An input that counts the rows that meet a condition; `of` identifies the condition."""
    return Input(Slot("count", (_BOOLEAN,)), (F.when(condition, F.lit(True)),), (of, *names))


def _wide(kind: str) -> str:
    """The type of the slot for values of a type."""
    return _LONG if kind in _INTEGRAL else _DOUBLE if kind in _FLOATING else kind


def _key(of: Input) -> tuple[Slot, tuple[str, ...]]:
    return of.slot, of.of


def _just(of: Input) -> Callable[[Any], Column]:
    return lambda results: results[_key(of)]
