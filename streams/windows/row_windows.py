"""Windows that records open and close: runs of equal states, from one event to another, a number of records.

    STATE_WINDOW(state)                        records of one key with the same state, one after the other
    EVENT_WINDOW(START WITH s END WITH e)      from a record that meets s to the next one that meets e
    COUNT_WINDOW(n, step)                      n records; the next window begins `step` records later

Records are ordered by event time, and at equal times by partition and offset. A record waits until the watermark has
reached it, as no older one can come after that. So up to the watermark the windows are those of all records in order,
whatever order they arrived in. Spark keeps the waiting records, and those in open windows, in its state.

Semantics of TDengine: records with a null state are in no window, and neither are records outside of events. A window's
times are those of its first and last record. An incomplete last state, event or count gives no result, and neither does
a window that is shorter than TRUE_FOR.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from operator import attrgetter

import msgspec

from barnabas.wire.streams.windows import CountWindow, EventWindow, Least, RowWindow, StateWindow

#: A record's role in an event window.
STARTS, ENDS = "s", "e"


class Row(msgspec.Struct, array_like=True, frozen=True):
    """A record: its event time in microseconds, its position, its mark, and the aggregates' inputs.

    The mark is the state as text, or which of `STARTS` and `ENDS` the record is; null for a null state.
    """

    at: int
    partition: int
    offset: int
    mark: str | None
    inputs: str


class Of(msgspec.Struct, array_like=True):
    """The state of one key: records that others may still precede, and those of the open window."""

    waiting: list[Row] = msgspec.field(default_factory=list)
    open: list[Row] = msgspec.field(default_factory=list)

    def __len__(self) -> int:
        return len(self.waiting) + len(self.open)


_ORDER = attrgetter("at", "partition", "offset")


def advance(window: RowWindow, of: Of, new: Iterable[Row], watermark: int) -> Iterator[list[Row]]:
    """Take records of a key, and yield the records of windows that close up to the watermark (in microseconds)."""
    waiting = sorted([*of.waiting, *new], key=_ORDER)
    ready = next((number for number, row in enumerate(waiting) if row.at > watermark), len(waiting))
    of.waiting = waiting[ready:]
    least = Least() if isinstance(window, CountWindow) else window.least
    for row in waiting[:ready]:
        for rows in _take(window, of, row):
            if least.is_met(rows[-1].at - rows[0].at, len(rows)):
                yield rows


def _take(window: RowWindow, of: Of, row: Row) -> Iterator[list[Row]]:
    """The windows that a record closes."""
    if isinstance(window, StateWindow):
        if row.mark is None:
            return
        if of.open and of.open[0].mark != row.mark:
            yield of.open
            of.open = []
        of.open.append(row)
    elif isinstance(window, EventWindow):
        mark = row.mark or ""
        if of.open or STARTS in mark:
            of.open.append(row)
        if of.open and ENDS in mark:
            yield of.open
            of.open = []
    else:
        assert isinstance(window, CountWindow)
        of.open.append(row)
        if len(of.open) == window.count:
            yield of.open
            of.open = of.open[window.sliding :]
