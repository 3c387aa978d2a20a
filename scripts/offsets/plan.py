"""What a copy of offsets would do, from what is here and what is there. Pure: it changes nothing and asks nobody."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple

from barnabas.scripts.offsets.store import Bounds, Change, Partition, Position


class Action(Enum):
    SET = "set"
    SAME = "is there"
    AHEAD = "ahead there"  # somebody has read further there: left as it is, unless the copy is exact
    REFUSED = "refused"


class Step(NamedTuple):
    """What becomes of one partition."""

    partition: Partition
    action: Action
    change: Change
    note: str = ""


def plan(
    here: Mapping[Partition, Position],
    there: Mapping[Partition, Position],
    bounds: Mapping[Partition, Bounds | None] | None,
    *,
    exact: bool,
    any_range: bool,
) -> list[Step]:
    """A step for each partition that is `here`. What only `there` has stays.

    `exact` moves positions back, too; without it only forward. `bounds` are those of the logs there: a position beyond
    them is refused, unless `any_range`.
    """
    steps = []
    for partition, position in sorted(here.items()):
        old = there.get(partition)
        change = Change(old, position)
        note = _misfit(partition, position, bounds)
        if old is not None and old.offset == position.offset and _says_no_less(old, position):
            steps.append(Step(partition, Action.SAME, change, note))
        elif old is not None and old.offset > position.offset and not exact:
            steps.append(Step(partition, Action.AHEAD, change, note))
        elif bounds is not None and bounds.get(partition) is None:
            steps.append(Step(partition, Action.REFUSED, change, note))
        elif note and not any_range:
            steps.append(Step(partition, Action.REFUSED, change, f"{note}: --any-range writes it all the same"))
        else:
            steps.append(Step(partition, Action.SET, change, note))
    return steps


def _says_no_less(old: Position, new: Position) -> bool:
    """A place that keeps only offsets has no metadata to give: what is there is as good."""
    return new.metadata in ("", old.metadata)


def _misfit(partition: Partition, position: Position, bounds: Mapping[Partition, Bounds | None] | None) -> str:
    if bounds is None:
        return ""
    found = bounds.get(partition)
    if found is None:
        return "there is no such partition there"
    if position.offset > found.end:
        return f"{position.offset} is beyond the end of the log, {found.end}"
    if position.offset < found.start:
        return f"{position.offset} is before the start of the log, {found.start}"
    return ""
