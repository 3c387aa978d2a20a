"""Plans a copy of offsets from the source's and the target's positions. It is pure: no I/O, no changes."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple

from barnabas.scripts.offsets.store import Bounds, Change, Partition, Position


class Action(Enum):
    SET = "set"
    SAME = "is there"
    AHEAD = "ahead there"  # a group has read further there: left alone, unless the copy is exact
    REFUSED = "refused"


class Step(NamedTuple):
    """What happens to one partition."""

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
    """A step for each partition that is `here`. Partitions only `there` stay as they are.

    `exact` also moves positions back; otherwise they move forward only. `bounds` are those of the target's logs: a
    position outside them is refused, unless `any_range`.
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
            steps.append(Step(partition, Action.REFUSED, change, f"{note}: --any-range writes it anyway"))
        else:
            steps.append(Step(partition, Action.SET, change, note))
    return steps


def _says_no_less(old: Position, new: Position) -> bool:
    """Whether the old position has the new one's metadata. A store that keeps only offsets has none to give."""
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
