"""Windows that records open and close, as a stateful Spark operator that returns the records of closed windows.

All records of a window come out in the same batch, so its aggregates are computed within that batch. Keys are hashed
into parts with one state each, as a Python call for each key and batch would take longer than all the rest. The inputs
of aggregates pass through the operator as JSON, which keeps their types.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from barnabas.streams.encode.times import READ_TIMES, TIMES
from barnabas.streams.windows import limits
from barnabas.streams.windows.row_windows import Of, Row, advance
from barnabas.wire.streams.windows import RowWindow

if TYPE_CHECKING:
    from pyspark.sql.streaming.state import GroupState

#: The number of parts into which a stream's keys are divided.
PARTS = 64
#: The beginning of the reason when a stream has stopped because of too much state.
OUTGROWN = "a part of its state has"
CLOSED = (
    "__stream int, __keys string, __number bigint, __start bigint, __end bigint, "
    "__at bigint, __partition int, __offset bigint, __inputs string"
)
_STATE = "kept binary"
Frame: TypeAlias = Any  # of pandas
_GIVEN = ("__keys", "__at", "__partition", "__offset", "__mark", "__inputs")
_COLUMNS = [column.split()[0] for column in CLOSED.split(", ")]
_kept = msgspec.msgpack.Decoder(dict[str, Of])


def closed_rows(rows: DataFrame, time: str, inputs: Iterable[str], window: RowWindow, most_rows: int) -> DataFrame:
    """The records of closing windows in a streaming frame, with the columns of `CLOSED`.

    `rows` has the event time with its watermark, the inputs, and `__stream`, `__keys`, `__mark`, `__partition`,
    `__offset`.
    """
    given = rows.select(
        time,
        "__stream",
        F.unix_micros(time).alias("__at"),
        "__partition",
        "__offset",
        F.to_json("__keys").alias("__keys"),
        "__mark",
        F.to_json(F.struct(*inputs), TIMES).alias("__inputs"),
    ).withColumn("__part", F.pmod(F.hash("__keys"), F.lit(PARTS)))
    step = Step(window, most_rows).__call__
    return given.groupBy("__stream", "__part").applyInPandasWithState(
        step, CLOSED, _STATE, "append", "EventTimeTimeout"
    )


def windows_of(closed: DataFrame, inputs: Iterable[tuple[str, str]]) -> DataFrame:
    """The records of a batch's windows, with their inputs and the window as `__w`."""
    schema = ", ".join(f"{name} {kind}" for name, kind in inputs)
    window = F.struct(
        F.timestamp_micros("__start").alias("start"), F.timestamp_micros("__end").alias("end"), F.col("__number")
    )
    return closed.select(
        "__stream",
        F.from_json("__keys", "array<string>").alias("__keys"),
        window.alias("__w"),
        "__at",
        "__partition",
        "__offset",
        F.from_json("__inputs", schema, READ_TIMES).alias("__given"),
    ).select("*", "__given.*")


class Step(msgspec.Struct, frozen=True):
    """Spark calls this for each part with new records, or whose waiting records are due."""

    window: RowWindow
    most_rows: int

    def __call__(self, key: tuple[Any, ...], frames: Iterable[Frame], state: GroupState) -> Iterator[Frame]:
        """The records of closing windows. Raises RuntimeError if the state exceeds its limit."""
        kept: dict[str, Of] = _kept.decode(state.get[0]) if state.exists else {}
        new: dict[str, list[Row]] = {}
        for frame in frames:
            columns = [frame[name].tolist() for name in _GIVEN]
            for keys, *row in zip(*columns, strict=True):
                new.setdefault(keys, []).append(Row(*row))
        watermark = state.getCurrentWatermarkMs() * 1000
        found = [
            (keys, rows)
            for keys in sorted(kept.keys() | new.keys())
            for rows in advance(self.window, kept.setdefault(keys, Of()), new.get(keys, ()), watermark)
        ]
        _keep(state, kept, self.most_rows)
        yield _frame(int(key[0]), found)


def _keep(state: GroupState, kept: dict[str, Of], most_rows: int) -> None:
    """Store the state, and have Spark call again when the watermark reaches the next waiting record."""
    rows = sum(map(len, kept.values()))
    if rows > most_rows:
        raise RuntimeError(
            f"{OUTGROWN} {rows:,} records, more than MAX_STATE_ROWS ({most_rows:,}): drop the stream, and make it with "
            "smaller windows, a shorter WATERMARK, or a larger number."
        )
    kept = {keys: of for keys, of in kept.items() if len(of)}
    if not kept:
        state.remove()
        return
    state.update((encoded(kept),))
    waiting = min((of.waiting[0].at for of in kept.values() if of.waiting), default=None)
    if waiting is not None:
        state.setTimeoutTimestamp(max(math.ceil(waiting / 1000), state.getCurrentWatermarkMs() + 1))


def encoded(kept: Mapping[str, Any]) -> bytes:
    """The state of a part. Raises RuntimeError if it is too large."""
    found = msgspec.msgpack.encode(kept)
    if len(found) > limits.MAX_PART_BYTES:
        raise RuntimeError(
            f"{OUTGROWN} {len(found) >> 20} MiB, more than {limits.MAX_PART_BYTES >> 20}: drop the stream, and make it "
            "with smaller windows, a shorter WATERMARK, fewer keys, or fewer and shorter texts"
        )
    return found


def _frame(stream: int, found: Iterable[tuple[str, list[Row]]]) -> Frame:
    """The records of windows, which are numbered, because two windows of a key may have the same times."""
    import pandas as pd  # type: ignore[import-untyped]

    rows = [
        (stream, keys, number, rows[0].at, rows[-1].at, row.at, row.partition, row.offset, row.inputs)
        for number, (keys, rows) in enumerate(found)
        for row in rows
    ]
    return pd.DataFrame(rows, columns=_COLUMNS)
