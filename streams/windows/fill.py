"""FILL: makes the empty windows of a key between two windows that have records.

    Spark's windows, as they close -> each with the one before it of its key (an operator with state)
                                   -> in the batch, those between the two: their aggregates are made of these two

Windows of a key close in order, so the previous one is known when a window closes, and all kinds of FILL give the same
as in a query over the whole log. A gap after a key's last window is filled when its next window closes. Bounds: a gap
of more than `MAX_GAP` windows is not filled, and a key that is that far behind is forgotten.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import msgspec
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from barnabas.streams.encode.times import READ_TIMES, TIMES
from barnabas.streams.windows.row_plan import OUTGROWN, PARTS, encoded
from barnabas.wire.streams.tokens import NUMBER, STRING, Token, string_value
from barnabas.wire.streams.windows import LINEAR, NEXT, PREV, VALUE, Fill

if TYPE_CHECKING:
    from pyspark.sql.streaming.state import GroupState

#: A gap of more windows than this is not filled.
MAX_GAP = 1000
#: The most windows that a batch fills for the keys of one part.
MAX_FILLED = 20_000
#: The least limit of a part's keys; otherwise the limit is its share of MAX_STATE_ROWS.
MIN_KEYS = 1000
FOLLOWING = "__stream int, __keys string, __end bigint, __before bigint, __slots string, __prior string"
_STATE = "kept binary"
_COLUMNS = [column.split()[0] for column in FOLLOWING.split(", ")]
_NUMBERS = ("tinyint", "smallint", "int", "bigint", "float", "double", "decimal")
Frame: TypeAlias = Any  # of pandas


class Last(NamedTuple):
    """The last closed window of a key: its end in microseconds, and its slots as JSON."""

    end: int
    slots: str


class Follows(NamedTuple):
    """A window and the one before it. If there is none to fill from, `before` is the window's own end."""

    keys: str
    end: int
    before: int
    slots: str
    prior: str


_kept = msgspec.msgpack.Decoder(dict[str, Last])


def follow(kept: dict[str, Last], windows: Iterable[tuple[str, int, str]], step_us: int) -> Iterator[Follows]:
    """Take closed windows: their keys, ends and slots. `kept` has the last window of each key."""
    newest = 0
    for keys, end, slots in sorted(windows, key=lambda window: (window[1], window[0])):
        before, prior = kept.get(keys, (end, ""))
        if not 0 < end - before <= (MAX_GAP + 1) * step_us:
            before, prior = end, ""
        yield Follows(keys, end, before, slots, prior)
        kept[keys] = Last(end, slots)
        newest = end
    for keys in [keys for keys, last in kept.items() if newest - last.end >= (MAX_GAP + 1) * step_us]:
        del kept[keys]


class Step(msgspec.Struct, frozen=True):
    """Spark calls this for each part of the keys with closed windows."""

    step_us: int
    most_keys: int

    def __call__(self, key: tuple[Any, ...], frames: Iterable[Frame], state: GroupState) -> Iterator[Frame]:
        """Each window with the one before it. Raises RuntimeError if a limit is exceeded."""
        import pandas as pd  # type: ignore[import-untyped]

        kept: dict[str, Last] = _kept.decode(state.get[0]) if state.exists else {}
        windows = [
            window
            for frame in frames
            for window in zip(*(frame[name].tolist() for name in ("__keys", "__end", "__slots")), strict=True)
        ]
        found = list(follow(kept, windows, self.step_us))
        filled = sum(max((each.end - each.before) // self.step_us - 1, 0) for each in found)
        if filled > MAX_FILLED or len(kept) > self.most_keys:
            what = f"{filled:,} windows to fill" if filled > MAX_FILLED else f"{len(kept):,} keys"
            most = f"{MAX_FILLED:,}" if filled > MAX_FILLED else f"a {PARTS}th of MAX_STATE_ROWS ({self.most_keys:,})"
            raise RuntimeError(
                f"{OUTGROWN} {what}, more than {most}: drop the stream, and make it with longer windows or fewer keys"
            )
        state.update((encoded(kept),))
        rows = [(int(key[0]), each.keys, each.end, each.before, each.slots, each.prior) for each in found]
        yield pd.DataFrame(rows, columns=_COLUMNS)


def following(made: DataFrame, step_us: int, most_rows: int) -> DataFrame:
    """Windows as they close, from a streaming frame with `__stream`, `__w` (their end), `__keys` and slots."""
    slots = F.struct(*_slots(made.schema).names)
    given = made.select(
        "__stream",
        F.to_json("__keys").alias("__keys"),
        F.unix_micros("__w").alias("__end"),
        F.to_json(slots, TIMES).alias("__slots"),
    ).withColumn("__part", F.pmod(F.hash("__keys"), F.lit(PARTS)))
    step = Step(step_us, max(most_rows // PARTS, MIN_KEYS)).__call__
    return given.groupBy("__stream", "__part").applyInPandasWithState(step, FOLLOWING, _STATE, "append", "NoTimeout")


def filled(batch: DataFrame, made: StructType, step_us: int) -> DataFrame:
    """The windows in a batch of `following`, and those between them.

    The columns are those of `made`, the slots of the previous window (`p0` for `a0`), and `__share`: a window's
    position between the previous one (0) and the next one (1).
    """
    slots = _slots(made)
    end, before = F.col("__end"), F.col("__before")
    first = F.when(before == end, end).otherwise(before + step_us)
    rows = batch.select(
        "__stream",
        F.from_json("__keys", "array<string>").alias("__keys"),
        end,
        before,
        F.from_json("__slots", slots, READ_TIMES).alias("__next"),
        F.from_json("__prior", slots, READ_TIMES).alias("__last"),
        F.explode(F.sequence(first, end, F.lit(step_us).cast("bigint"))).alias("__at"),
    )
    share = F.when(F.col("__at") == end, 1.0).otherwise((F.col("__at") - before) / (end - before))
    return rows.select(
        "__stream",
        F.timestamp_micros("__at").alias("__w"),
        "__keys",
        *(F.col(f"__next.{name}").alias(name) for name in slots.names),
        *(F.col(f"__last.{name}").alias(prior(name)) for name in slots.names),
        share.alias("__share"),
    )


def prior(slot: str) -> str:
    """The column for a slot of the previous window."""
    return f"p{slot[1:]}"


def fill_value(fill: Fill, number: int, before: Column, after: Column, kind: str) -> Column:
    """The result of the SELECT's aggregate `number`: its own, or the filled value in an empty window.

    Raises ValueError if its type has no such value.
    """
    share = F.col("__share")
    if fill.kind == PREV:
        made = before
    elif fill.kind == NEXT:
        made = after
    elif fill.kind == LINEAR:
        if not kind.startswith(_NUMBERS):
            raise ValueError(f"LINEAR is between numbers, and an aggregate is a {kind}: use PREV or NEXT")
        made = (before + (after - before) * share).cast(kind)
    elif fill.kind == VALUE:
        made = _literal(fill.values[number] if len(fill.values) > 1 else fill.values[0], kind)
    else:
        made = F.lit(None).cast(kind)
    return F.when(share == 1.0, after).otherwise(made)


def _literal(tokens: tuple[Token, ...], kind: str) -> Column:
    """A value of FILL(VALUE) with the type of its aggregate."""
    last, text = tokens[-1], "".join(token.text for token in tokens)
    if last.says("NULL"):
        return F.lit(None).cast(kind)
    if last.kind == NUMBER and kind.startswith(_NUMBERS):
        return F.lit(text).cast("double" if kind in ("float", "double") else "decimal(38,10)").cast(kind)
    if last.kind == STRING and kind == "string":
        return F.lit(string_value(last))
    if last.says("TRUE", "FALSE") and kind == "boolean":
        return F.lit(last.says("TRUE"))
    raise ValueError(f"FILL(VALUE) has {text} for an aggregate that is a {kind}")


def check_values(fill: Fill, aggregates: Mapping[str, object]) -> None:
    """Raises ValueError unless there are as many values as aggregates."""
    if fill.kind == VALUE and len(fill.values) not in (1, len(aggregates)):
        given, wanted = len(fill.values), len(aggregates)
        raise ValueError(f"FILL(VALUE) has {given} values: it takes one, or one for each of the {wanted} aggregates")


def _slots(made: StructType) -> StructType:
    return StructType([field for field in made.fields if not field.name.startswith("__")])
