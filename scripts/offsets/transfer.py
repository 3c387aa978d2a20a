"""Carries out plans: records the old positions in the journal, writes, and reads back what was written."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from barnabas.scripts.offsets.journal import Journal, Undo
from barnabas.scripts.offsets.kafka import KafkaStore
from barnabas.scripts.offsets.plan import Action, Step, plan
from barnabas.scripts.offsets.store import Change, OffsetStore, Partition, Position, Problem
from barnabas.scripts.offsets.translate import translate


class Rules(NamedTuple):
    """What the operator allows."""

    exact: bool = False
    any_range: bool = False
    live: bool = False  # whether to write groups with members, too
    translate: str = ""  # how to find positions in logs that differ: see `translate`


@dataclass
class Outcome:
    """What was done, and what went wrong."""

    groups: int = 0
    counts: Counter[Action] = field(default_factory=Counter)
    problems: list[Problem] = field(default_factory=list)
    #: Steps that the user may want to see: all of them in a dry run.
    shown: list[tuple[str, Step]] = field(default_factory=list)

    def wrong(self, place: str, reason: str) -> None:
        self.problems.append(Problem(place, reason))

    def summary(self, verb: str) -> str:
        """What was done, in one line."""
        said = [f"{count} {action.value}" for action in Action if (count := self.counts[action])]
        return f"{self.groups} group(s), {self.counts.total()} partition(s) {verb}: {', '.join(said) or 'nothing'}"


def copy(
    groups: Mapping[str, Mapping[Partition, Position]] | OffsetStore,
    there: OffsetStore,
    names: list[str],
    rules: Rules,
    journal: Callable[[], Journal] | None,
    told: Callable[[int], None],
) -> Outcome:
    """Copy the positions of groups. Without a `journal`, nothing is written.

    `told` is called with the number of groups done. Raises ClientError if a store can no longer be reached; the rest is
    then not done.
    """
    outcome = Outcome()
    for number, group in enumerate(names, 1):
        here = groups.get(group, {}) if isinstance(groups, Mapping) else groups.read(group)
        source = None if isinstance(groups, Mapping) else groups
        if not _is_quiet(group, source, there, rules, outcome):
            continue
        if not here:
            outcome.wrong(f"group {group}", "there are no offsets to copy")
            continue
        outcome.groups += 1
        if rules.translate:
            assert isinstance(source, KafkaStore)
            assert isinstance(there, KafkaStore)
            here, problems = translate(source, there, here, rules.translate, group)
            outcome.problems += problems
        now = there.read(group)
        steps = plan(here, now, there.bounds(here), exact=rules.exact, any_range=rules.any_range)
        for step in steps:
            if step.action is Action.REFUSED:
                outcome.wrong(f"group {group}, {step.partition}", step.note)
        outcome.shown += [(group, step) for step in steps]
        changes = {step.partition: step.change for step in steps if step.action is Action.SET}
        if journal is not None and changes:
            failed = _carry_out(group, changes, there, journal(), outcome)
            steps = [s._replace(action=Action.REFUSED) if s.partition in failed else s for s in steps]
        outcome.counts.update(step.action for step in steps)
        told(number)
    return outcome


def _is_quiet(group: str, here: OffsetStore | None, there: OffsetStore, rules: Rules, outcome: Outcome) -> bool:
    """Whether a group may be written. Its members, if it has any, would overwrite what is written."""
    if rules.live:
        return True
    for place in (here, there):
        members = place.live_members(group) if place is not None else 0
        if place is not None and members:
            reason = f"it has {members} member(s) in {place.name}: stop them, or use --live to go on anyway"
            outcome.wrong(f"group {group}", reason)
            return False
    return True


def _carry_out(
    group: str, changes: Mapping[Partition, Change], there: OffsetStore, journal: Journal, outcome: Outcome
) -> set[Partition]:
    """Write, read back, and return the partitions that are not as they should be."""
    journal.note(group, changes)
    failed = there.write(group, changes)
    now = there.read(group)
    for partition, change in changes.items():
        wanted = change.new.offset if change.new is not None else None
        found = now[partition].offset if partition in now else None
        if partition not in failed and found != wanted:
            failed[partition] = f"{wanted} was written, but {found} is there now"
    for partition, reason in sorted(failed.items()):
        outcome.wrong(f"group {group}, {partition}", reason)
    return set(failed)


def undo(
    there: OffsetStore,
    entries: Mapping[str, Mapping[Partition, Undo]],
    rules: Rules,
    journal: Callable[[], Journal] | None,
    told: Callable[[int], None],
) -> Outcome:
    """Put back the old positions. One that someone has changed since stays, unless `exact`. Raises ClientError."""
    outcome = Outcome()
    for number, (group, undos) in enumerate(entries.items(), 1):
        if not _is_quiet(group, None, there, rules, outcome):
            continue
        outcome.groups += 1
        now = there.read(group)
        changes: dict[Partition, Change] = {}
        for partition, (before, written) in undos.items():
            found = now.get(partition)
            action = Action.SET
            if _offset(found) == _offset(before):
                action = Action.SAME
            elif _offset(found) not in map(_offset, written) and not rules.exact:
                action = Action.REFUSED
                outcome.wrong(
                    f"group {group}, {partition}",
                    f"{_offset(found)} is there, which no change of the journal wrote: --exact restores "
                    f"{_offset(before)} anyway",
                )
            else:
                changes[partition] = Change(found, before)
            outcome.counts[action] += 1
        if changes and journal is not None:
            failed = _carry_out(group, changes, there, journal(), outcome)
            outcome.counts[Action.SET] -= len(failed)
            outcome.counts[Action.REFUSED] += len(failed)
        told(number)
    return outcome


def _offset(position: Position | None) -> int | None:
    return None if position is None else position.offset


class Difference(NamedTuple):
    """A partition whose positions differ."""

    group: str
    partition: Partition
    here: Position | None
    there: Position | None


def verify(
    groups: Mapping[str, Mapping[Partition, Position]] | OffsetStore,
    there: OffsetStore,
    names: list[str],
    told: Callable[[int], None],
) -> tuple[int, list[Difference]]:
    """How many partitions were compared, and those that differ. What is only `there` is not a difference."""
    count = 0
    found = []
    for number, group in enumerate(names, 1):
        here = groups.get(group, {}) if isinstance(groups, Mapping) else groups.read(group)
        now = there.read(group)
        count += len(here)
        found += [
            Difference(group, partition, position, now.get(partition))
            for partition, position in sorted(here.items())
            if _offset(now.get(partition)) != position.offset
        ]
        told(number)
    return count, found
