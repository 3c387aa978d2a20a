"""`barnabas offsets status` and `migrate`: move running groups between ZooKeeper and a broker's log.

    step       forward (--to kafka)            back (--to zookeeper)
    1 check    what ZooKeeper says fits        what the log says fits ZooKeeper
    2 both     dual.commit.enabled=true        dual.commit.enabled=true: the log goes to ZooKeeper
    3 verify   both say the same               both say the same
    4 one      dual.commit.enabled=false       offsets.storage=zookeeper

The next step is derived from the broker and both stores, so the same command continues a run that was killed. The
journal serves `undo` only.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

from barnabas.client.admin import broker_configs, set_broker_config
from barnabas.client.cluster import Cluster
from barnabas.client.errors import ClientError, name_of
from barnabas.client.groups import Committed, commit
from barnabas.client.zookeeper.layout import misfit
from barnabas.scripts.offsets.command import Journals, open_store, tell_problems
from barnabas.scripts.offsets.kafka import MOST_PARTITIONS, KafkaStore
from barnabas.scripts.offsets.plan import Action, plan
from barnabas.scripts.offsets.store import Partition, Position, Problem
from barnabas.scripts.offsets.transfer import Rules, copy
from barnabas.scripts.offsets.zookeeper import ZooKeeperStore
from barnabas.wire.table import table

STATE = "barnabas.offsets.state"
LOOK_SECONDS = 0.1
_MOST_SHOWN = 20


class State(NamedTuple):
    """How a broker currently keeps offsets; or all of its nodes, each of which has the groups that it coordinates."""

    storage: str
    dual: bool
    zookeeper: str
    down: str | None
    comparing: bool
    behind: int
    groups_behind: Mapping[str, int]
    refused: int
    refused_more: bool
    refused_offsets: Mapping[str, str]

    @property
    def in_step(self) -> bool:
        return not (self.down or self.comparing or self.behind)


def state_of(cluster: Cluster) -> State | None:
    """None for a cluster that keeps offsets in its log and has no ZooKeeper. Raises ClientError."""
    told = {node: configs.get(STATE) for node, configs in broker_configs(cluster).items()}
    states = {node: State(**json.loads(text)) for node, text in told.items() if text is not None}
    if not states:
        return None
    return states.popitem()[1] if len(told) == 1 else together(states)


def together(states: Mapping[int, State]) -> State:
    """What several nodes say, as one."""
    every = states.values()
    some = next(iter(every))
    return State(
        storage="zookeeper" if all(each.storage == "zookeeper" for each in every) else "kafka",
        dual=all(each.dual for each in every),
        zookeeper=some.zookeeper,
        down=next((f"{state.down} (node {node})" for node, state in states.items() if state.down), None),
        comparing=any(each.comparing for each in every),
        behind=sum(each.behind for each in every),
        groups_behind={group: count for each in every for group, count in each.groups_behind.items()},
        refused=sum(each.refused for each in every),
        refused_more=any(each.refused_more for each in every),
        refused_offsets={place: why for each in every for place, why in each.refused_offsets.items()},
    )


def status(args: argparse.Namespace) -> int:
    """Print where offsets are kept, and which are not in ZooKeeper yet. Returns 1 if any are not."""
    with Cluster(args.server) as cluster:
        state = state_of(cluster)
    if state is None:
        print("offsets are in the log alone: zookeeper.connect is not set")
        return 0
    print(f"offsets.storage={state.storage} dual.commit.enabled={str(state.dual).lower()} zookeeper={state.zookeeper}")
    if not state.dual and state.storage == "kafka":
        print("offsets are in the log alone")
        return 0
    if state.down:
        print(f"ZooKeeper cannot be asked: {state.down}")
    if state.comparing:
        print("the log is being compared with ZooKeeper")
    if state.behind:
        print(f"{state.behind} offset(s) behind: they are in the log, and not in ZooKeeper yet")
        print(table(("GROUP", "BEHIND"), [[group, count] for group, count in state.groups_behind.items()]))
    if state.refused:
        more = " or more" if state.refused_more else ""
        print(f"{state.refused}{more} offset(s) cannot be there: they are in the log alone")
        print(table(("OFFSET", "REASON"), [[place, why] for place, why in state.refused_offsets.items()]))
    if state.in_step:
        print("ZooKeeper is in step")
    return int(not state.in_step or bool(state.refused))


def migrate(args: argparse.Namespace) -> int:
    """Do the four steps, starting at the current one."""
    address = args.zookeeper if "://" in args.zookeeper else f"zookeeper://{args.zookeeper}"
    zookeeper = open_store(address)
    if not isinstance(zookeeper, ZooKeeperStore):
        zookeeper.close()
        raise ClientError(f"--zookeeper {args.zookeeper}: expected HOST:PORT/CHROOT")
    try:
        kafka = KafkaStore(args.server)
        try:
            return Migration(args, kafka, zookeeper).run()
        finally:
            kafka.close()
    finally:
        zookeeper.close()


class Migration:
    """One run, for the named groups, or for all groups with offsets in the source."""

    def __init__(self, args: argparse.Namespace, kafka: KafkaStore, zookeeper: ZooKeeperStore) -> None:
        self._args, self._kafka, self._zookeeper = args, kafka, zookeeper
        self._cluster = kafka.cluster
        self._ends = time.monotonic() + args.timeout
        self._forward = args.to == "kafka"
        state = state_of(self._cluster)
        if state is None:
            place = zookeeper.name.removeprefix("zookeeper://")
            raise ClientError(
                f"{args.server} knows no ZooKeeper: start it with zookeeper.connect={place} in its config file"
            )
        own, given = (name.partition("/")[2] for name in (state.zookeeper, zookeeper.name.removeprefix("zookeeper://")))
        if own != given:
            raise ClientError(f"{args.server} has zookeeper.connect={state.zookeeper}: that is another chroot")
        self._state = state
        source = zookeeper if self._forward else kafka
        everything = source.groups()
        self._groups = list(dict.fromkeys(args.group)) or everything
        self._others = [group for group in everything if group not in set(self._groups)]

    def run(self) -> int:
        """Run the remaining steps, and return the exit status."""
        if self._is_done():
            _say(f"nothing to do: the offsets of {len(self._groups)} group(s) are in {self._args.to} alone")
            return 0
        problems = self._check()
        if problems or self._args.dry_run:
            return tell_problems(problems)
        self._switch_dual_on()
        self._wait(self._log_is_there, "ZooKeeper has what the log says")
        problems = [problem for group in self._groups for problem in self._sync(group)]
        if problems:
            _say("dual commit stays on: run this again when that is solved")
            return tell_problems(problems)
        for group in self._groups:
            self._wait(partial(self._differs, group), "both places say the same")
        self._wait(self._log_is_there, "ZooKeeper has what the log says")
        _say(f"step 3: verified, {len(self._groups)} group(s)")
        return self._switch_off()

    def _is_done(self) -> bool:
        """Whether an earlier run has completed."""
        if not self._forward:
            return self._state.storage == "zookeeper"
        return self._state.storage == "kafka" and not self._state.dual and not self._missing()

    # --- 1 ------------------------------------------------------------------------------------------------------------

    def _check(self) -> list[Problem]:
        """Reasons not to migrate. Nothing has been changed yet."""
        problems = []
        if self._others and not self._args.leave_others:
            names = ", ".join(self._others[:3])
            reason = "they would lose their offsets: name them too, or use --leave-others to go on anyway"
            problems.append(Problem(f"{len(self._others)} other group(s) ({names})", reason))
        count = ahead = 0
        for group in self._groups:
            if not self._forward and (why := misfit(group)):
                problems.append(Problem(f"group {group}", why))
                continue
            there, here = self._zookeeper.read(group), self._kafka.read(group)
            count += len(there if self._forward else here)
            steps = plan(there, here, self._kafka.bounds(there), exact=False, any_range=self._args.any_range)
            problems += [Problem(f"group {group}, {s.partition}", s.note) for s in steps if s.action is Action.REFUSED]
            ahead += sum(position.offset > _at(there, place) for place, position in here.items())
        problems += self._zookeeper.problems
        self._zookeeper.problems.clear()
        _say(f"step 1: checked, {len(self._groups)} group(s), {count} offset(s)")
        if ahead and not self._forward:
            _say(f"the log is ahead of ZooKeeper for {ahead} offset(s): they go there first")
        return problems

    # --- 2 ------------------------------------------------------------------------------------------------------------

    def _switch_dual_on(self) -> None:
        if self._state.storage == "kafka" and self._state.dual:
            _say("step 2: dual commit is on")
            return
        if self._forward and self._state.storage == "kafka":  # for groups that are not running: with a journal
            journals = Journals(self._args, self._kafka)
            quiet = [g for g in self._groups if not self._kafka.live_members(g) and not self._zookeeper.live_members(g)]
            rules = Rules(any_range=self._args.any_range)
            outcome = copy(self._zookeeper, self._kafka, quiet, rules, journals.get, lambda _: None)
            _say(outcome.summary("copied"))
            journals.tell()
        set_broker_config(self._cluster, {"offsets.storage": "kafka", "dual.commit.enabled": "true"})
        _say("step 2: dual commit is on now")

    def _log_is_there(self) -> str | None:
        state = state_of(self._cluster)
        if state is None or not state.dual:
            raise ClientError("dual commit was switched off meanwhile")
        if state.in_step:
            return None
        return state.down or f"{state.behind} offset(s) are behind"

    def _sync(self, group: str) -> list[Problem]:
        """Bring the log up to date with ZooKeeper. If a group has members, reading it makes the broker do that."""
        positions = self._kafka.read(group)
        if self._kafka.live_members(group):
            return []
        if self._zookeeper.live_members(group):
            reason = "it has members that commit to ZooKeeper alone: let them use the broker, and run this again"
            return [Problem(f"group {group}", reason)]
        there = self._zookeeper.read(group)
        wanted = [place for place in positions if place in there] if self._forward else []
        problems = []
        for start in range(0, len(wanted), MOST_PARTITIONS):
            some = {tuple(place): Committed(*positions[place]) for place in wanted[start : start + MOST_PARTITIONS]}
            for key, code in commit(self._cluster, group, some).items():  # type: ignore[arg-type]
                if code:
                    problems.append(Problem(f"group {group}, {Partition(*key)}", name_of(code)))
        return problems

    # --- 3 ------------------------------------------------------------------------------------------------------------

    def _differs(self, group: str) -> str | None:
        """Where a group's stores differ. A moving position must lie between its values before and after."""
        if misfit(group):
            return None
        before, there = self._kafka.read(group), self._zookeeper.read(group)
        if _same(before, there):
            return None
        after = self._kafka.read(group)
        for place in before:
            if not _at(before, place) <= _at(there, place) <= _at(after, place):
                return f"group {group}, {place}: {_at(before, place)} in the log, {_at(there, place)} in ZooKeeper"
        return None

    # --- 4 ------------------------------------------------------------------------------------------------------------

    def _switch_off(self) -> int:
        if not self._forward:
            self._wait(self._switched_to_zookeeper, "ZooKeeper is in step")
            _say("step 4: offsets are in ZooKeeper alone now")
            return 0
        set_broker_config(self._cluster, {"dual.commit.enabled": "false"})
        missing = self._missing()
        if missing:
            set_broker_config(self._cluster, {"dual.commit.enabled": "true"})
            _say("dual commit is on again: run this again")
            return tell_problems(missing)
        _say("step 4: dual commit is off now, offsets are in the log alone")
        return 0

    def _switched_to_zookeeper(self) -> str | None:
        try:
            set_broker_config(self._cluster, {"offsets.storage": "zookeeper"})
        except ClientError as error:  # a commit came in between
            return str(error)
        return None

    def _missing(self) -> list[Problem]:
        """Offsets that are in ZooKeeper but not in the log."""
        problems = []
        for group in self._groups:
            there = self._zookeeper.read(group)
            here = self._kafka.read(group)
            for place, position in there.items():
                if _at(here, place) < position.offset:
                    reason = f"{position.offset} in ZooKeeper, {_at(here, place)} in the log"
                    problems.append(Problem(f"group {group}, {place}", reason))
        return problems

    def _wait(self, why_not: Callable[[], str | None], what: str) -> None:
        """Return when no reason to wait is left. Raises ClientError on a timeout."""
        while (reason := why_not()) is not None:
            if time.monotonic() > self._ends:
                raise ClientError(f"not in {self._args.timeout:g} s: {what}: {reason}: dual commit stays on")
            time.sleep(LOOK_SECONDS)


def _at(positions: Mapping[Partition, Position], place: Partition) -> int:
    found = positions.get(place)
    return -1 if found is None else found.offset


def _same(here: Mapping[Partition, Position], there: Mapping[Partition, Position]) -> bool:
    return all(_at(there, place) == position.offset for place, position in here.items())


def _say(line: str, **_: Any) -> None:
    print(line, file=sys.stderr, flush=True)
