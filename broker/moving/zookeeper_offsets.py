"""Committed offsets in ZooKeeper, beside the log (dual.commit.enabled) or instead of it (offsets.storage=zookeeper).

For groups that move from ZooKeeper to Kafka's offsets one consumer at a time, and back: docs/offsets.md. The rules are
those of the consumers of Kafka 0.8.2 and 0.9, which stored offsets in both places themselves:

- A commit goes to the log first. After the log has it, it is written to ZooKeeper. The client gets no error if that
  fails or takes longer than `barnabas.zookeeper.timeout.ms`: `broker.moving.offset_mirror` catches up.
- OffsetFetch answers the larger offset. While ZooKeeper cannot be reached it answers COORDINATOR_LOAD_IN_PROGRESS, and
  every client tries again. The log alone may be behind or empty, and the group would repeat or skip records.
- Deleting an offset or a group removes the znodes first, and is refused if that cannot be done.

Clients choose the names of groups. A group whose name cannot be a znode has its offsets in the log only, and is
counted.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

import trio

from barnabas.broker.clock import Clock
from barnabas.broker.log import EventLog
from barnabas.broker.moving.offset_mirror import OffsetMirror, Wanted
from barnabas.broker.settings.config import BrokerConfig, OffsetStores
from barnabas.broker.settings.keys import ConfigError
from barnabas.client.zookeeper.layout import misfit, parse_connect
from barnabas.client.zookeeper.offsets import Found, Listing, NoRootError, OffsetNodes, Place, Write
from barnabas.client.zookeeper.session import MOST_OPERATIONS, Failure, KazooMissingError, LostError, Session
from barnabas.groupcoord.coordinator import GroupCoordinator
from barnabas.groupcoord.offsets.committed import Offsets, is_of
from barnabas.groupcoord.offsets.elsewhere import Change, Done, Places, Seen, newest
from barnabas.groupcoord.topics import Topics
from barnabas.wire.aliases import TopicPartition
from barnabas.wire.errors import ErrorCode, KafkaError
from barnabas.wire.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from barnabas.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from barnabas.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from barnabas.wire.records.offset_commit import OffsetCommitValue
from barnabas.wire.streams.keys import is_stream

R = TypeVar("R")
#: How long the mirror waits for an answer, or longer if commits may wait longer. Clients need not wait for the mirror.
REQUEST_SECONDS = 5.0
#: How often a write is repeated after another client was faster.
MOST_RACES = 4
#: The number of threads that read for OffsetFetch.
READERS = 4
#: The most groups named in the state.
MOST_SHOWN = 100
_NOBODY = KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "ZooKeeper cannot be asked now")


class Look(NamedTuple):
    """The answer of ZooKeeper about groups, and the errors for groups about which it cannot answer."""

    found: dict[str, dict[TopicPartition, Found | Failure]]
    refusals: dict[str, KafkaError]


class ZooKeeperOffsets:
    """The `Elsewhere` of the group coordinator. It is made at start if `zookeeper.connect` is set, and used once
    enabled.

    Raises ConfigError if kazoo is not installed.
    """

    def __init__(
        self,
        config: BrokerConfig,
        coordinator: GroupCoordinator,
        topics: Topics,
        clock: Clock,
        log: EventLog,
    ) -> None:
        self._config, self._coordinator, self._topics = config, coordinator, topics
        self._clock, self._log = clock, log
        self.alone = False
        self._is_on = False
        hosts, chroot = parse_connect(config["zookeeper.connect"])
        self._place = f"{hosts}{chroot}"
        try:
            self._session = Session(
                hosts,
                credentials=config["barnabas.zookeeper.credentials"],
                timeout=max(self._timeout(), REQUEST_SECONDS),
                session_timeout=config["zookeeper.session.timeout.ms"] / 1000,
            )
        except KazooMissingError as error:
            raise ConfigError(f"zookeeper.connect is set, and {error}") from None
        self._nodes = OffsetNodes(self._session, chroot)
        self._root_seen = self._root_was_gone = self._session_begun = False
        self._beginning = threading.Lock()
        self.mirror = OffsetMirror(self._write, self._logged, coordinator.deadlines, self._timeout, log)
        self._writer, self._readers = trio.CapacityLimiter(1), trio.CapacityLimiter(READERS)
        self._switched_on = trio.Event()

    def _timeout(self) -> float:
        return float(self._config["barnabas.zookeeper.timeout.ms"] / 1000)

    # --- on and off ---------------------------------------------------------------------------------------------------

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run the mirror from the first time that it is enabled. Closes the session at the end."""
        try:
            async with trio.open_nursery() as self._nursery:
                task_status.started()
                await self._switched_on.wait()
                await self.mirror.run()
        finally:
            if self._session_begun:
                with trio.move_on_after(self._timeout(), shield=True):
                    await trio.to_thread.run_sync(self._session.close, abandon_on_cancel=True)

    def apply(self, stores: OffsetStores) -> None:
        """Start or stop keeping offsets in ZooKeeper."""
        if (stores.zookeeper, not stores.log) == (self._is_on, self.alone and self._is_on):
            return
        was_on, self._is_on, self.alone = self._is_on, stores.zookeeper, not stores.log
        storage = "zookeeper" if self.alone else "kafka"
        self._log.info("offsets.storage", storage=storage, dual=self._is_on and not self.alone, zookeeper=self._place)
        if was_on and not self._is_on and self.mirror.behind:
            self._log.warning("offsets.zookeeper.left_behind", offsets=self.mirror.behind)
        if self._is_on:
            self._switched_on.set()
        self._coordinator.keep_elsewhere(self if self._is_on else None)

    def check_switch(self, before: OffsetStores, after: OffsetStores) -> None:
        """Raises ConfigError for a change at run time after which some commits would not be found."""
        if not before.zookeeper and not after.log:
            raise ConfigError(
                "offsets.storage=zookeeper would read old offsets there: set dual.commit.enabled=true first, and "
                "wait until `barnabas offsets status` says that nothing is behind"
            )
        if not before.log and not after.zookeeper:
            raise ConfigError("the commits in ZooKeeper are not in the log: go through dual.commit.enabled=true")
        if before.log and not after.log and (self.mirror.unawaited or self.mirror.is_comparing or self.mirror.down):
            raise ConfigError("ZooKeeper is behind the log: wait until `barnabas offsets status` says that it is not")

    @property
    def is_on(self) -> bool:
        return self._is_on

    def state(self) -> str:
        """The output of `barnabas offsets status`, as JSON."""
        mirror = self.mirror
        groups = mirror.behind_by_group() if self._is_on else {}
        refused = {f"{group[:300]} {where[0]}-{where[1]}": why for (group, where), why in mirror.refused.items()}
        state = {
            "storage": "zookeeper" if self.alone else "kafka",
            "dual": self._is_on and not self.alone,
            "zookeeper": self._place,
            "down": mirror.down,
            "comparing": mirror.is_comparing,
            "behind": mirror.unawaited,
            "groups_behind": {group[:300]: count for group, count in list(groups.items())[:MOST_SHOWN]},
            "refused": len(mirror.refused),
            "refused_more": mirror.refused_more,
            "refused_offsets": dict(list(refused.items())[:MOST_SHOWN]),
        }
        return json.dumps(state)

    # --- called by the coordinator ------------------------------------------------------------------------------------

    def loaded(self, partition: int) -> None:
        if not self.alone:  # otherwise the log's offsets are old
            self.mirror.compare(partition)

    def unloaded(self, partition: int) -> None:
        self.mirror.let_go(partition, lambda group: self._coordinator.partition_of(group) == partition)

    def changed(self, group_id: str, changed: Sequence[Change]) -> None:
        if is_stream(group_id):
            return
        if misfit(group_id):
            self._refuse(group_id, changed)
            return
        if self.mirror.is_full:
            self.mirror.forget_marks(self._coordinator.shards.by_partition)
        for where, value in changed:
            self.mirror.mark((group_id, where), _offset(value))

    def after(self, group_id: str, changed: Sequence[Change], then: Callable[[], None]) -> None:
        self.mirror.wait([(group_id, where) for where, _ in changed], lambda _: self._coordinator.in_turn(then))

    def store(self, group_id: str, changed: Sequence[Change], done: Done) -> None:
        if misfit(group_id):
            self._refuse(group_id, changed)
            done(ErrorCode.INVALID_GROUP_ID)
            return
        if self.mirror.down or self.mirror.is_behind or self.mirror.is_full:
            done(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            return
        for where, value in changed:
            self.mirror.mark((group_id, where), _offset(value), only_asked=True)
        places = [(group_id, where) for where, _ in changed]

        def told(reason: str | None) -> None:
            refused = any(place in self.mirror.refused for place in places)
            code = ErrorCode.UNKNOWN_SERVER_ERROR if refused else ErrorCode.COORDINATOR_NOT_AVAILABLE
            self._coordinator.in_turn(partial(done, ErrorCode.NONE if reason is None else code))

        self.mirror.wait(places, told)

    def _refuse(self, group_id: str, changed: Sequence[Change]) -> None:
        for where, value in changed:
            if value is None:
                self.mirror.accept((group_id, where))
            else:
                self.mirror.refuse((group_id, where), misfit(group_id) or "")

    def clear(self, places: Places, before_ms: int, then: Callable[[Places | None], None]) -> None:
        self._nursery.start_soon(self._clear_old, places, before_ms, then)

    async def _clear_old(self, places: Places, before_ms: int, then: Callable[[Places | None], None]) -> None:
        gone = None if self.mirror.is_comparing else await self._removed(places, before_ms)  # would be rewritten
        self._coordinator.in_turn(partial(then, gone))

    async def _removed(self, places: Places, before_ms: int) -> Places | None:
        asked = [(group, where) for group, of in places.items() if not misfit(group) for where in of]
        gone = {group: list(of) for group, of in places.items() if misfit(group)}
        try:
            for group, where in await self._in_thread(partial(self._remove, asked, before_ms)):
                gone.setdefault(group, []).append(where)
        except LostError as error:
            self.mirror.lost(str(error))
            return None
        return gone

    # --- OffsetFetch --------------------------------------------------------------------------------------------------

    async def fetch(self, request: OffsetFetchRequest, version: int) -> OffsetFetchResponse:
        """Answer OffsetFetch from both places."""
        watch = self.mirror.watch()
        try:
            asked = self._coordinator.asked_offsets(request, version)
            found = None if self.mirror.down else await self._look(asked, watch)
            return self._coordinator.fetch_offsets(request, version, partial(self._overlay, found, watch, asked))
        finally:
            self.mirror.unwatch(watch)

    async def _look(self, asked: Mapping[str, list[TopicPartition] | None], watch: set[Place]) -> Look | None:
        """Read offsets from ZooKeeper; None if it does not answer in time.

        Many positions take long, so they are read in pieces with one timeout each. Between them, other readers have a
        turn.
        """
        look = Look({}, {})
        wanted = {group: of for group, of in asked.items() if not misfit(group)}
        places = [(group, where) for group, of in wanted.items() for where in of or ()]
        for group in (group for group, of in wanted.items() if of is None):
            listing = await self._in_time(partial(self._list, group))
            if listing is None:
                return None
            if listing.unlisted:
                look.refusals[group] = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, str(listing.unlisted))
            places += [(group, where) for where in listing.partitions]
        for start in range(0, len(places), MOST_OPERATIONS):
            some = places[start : start + MOST_OPERATIONS]
            watch.update(filter(self.mirror.marked, some))
            told = await self._in_time(partial(self._read, some))
            if told is None:
                return None
            for (group, where), each in zip(some, told, strict=True):
                if each is not None:
                    look.found.setdefault(group, {})[where] = each
        return look

    async def _in_time(self, read: Callable[[], R]) -> R | None:
        """Read in a thread; None if ZooKeeper has not answered in time, or too many other reads were waiting."""
        began = time.monotonic()
        try:
            with trio.fail_after(self._timeout()):
                return await self._in_thread(read, self._readers)
        except NoRootError as error:
            self.mirror.lost(str(error))
        except (LostError, trio.TooSlowError) as error:
            if self._session.heard < began:  # otherwise the client may be the cause
                self.mirror.lost(str(error) or f"no answer within {self._timeout():g} s")
        return None

    def _list(self, group: str) -> Listing:
        until = time.monotonic() + self._timeout()
        self._connect()
        return self._nodes.listing(group, until)

    def _read(self, places: Sequence[Place]) -> list[Found | Failure | None]:
        until = time.monotonic() + self._timeout()
        self._connect()
        return self._nodes.read(places, until)

    def _overlay(
        self,
        look: Look | None,
        watch: set[Place],
        asked: Mapping[str, list[TopicPartition] | None],
        group_id: str,
        log: Offsets,
    ) -> Offsets:
        """The offsets of a group, with ZooKeeper's merged in. Raises KafkaError if they are not known."""
        wanted = asked.get(group_id)
        if misfit(group_id):
            return Offsets() if self.alone and not is_stream(group_id) else log
        if look is None:
            marked = wanted is not None and all(self.mirror.marked((group_id, where)) for where in wanted)
            if not marked or self.alone:
                raise _NOBODY
            return log
        if group_id in look.refusals and (self.alone or not log.committed):
            raise look.refusals[group_id]
        there = look.found.get(group_id, {})
        in_step = self.mirror.in_step(self._coordinator.partition_of(group_id))
        shown, further, unreadable = Offsets(), {}, set[TopicPartition]()
        shown.pending_transactional = log.pending_transactional
        for where in dict.fromkeys([*log.committed, *there] if wanted is None else wanted):
            now = self._topics.by_name(where[0])
            if now is None:
                continue
            place, value = (group_id, where), log.committed.get(where)
            if self.alone or (value is not None and not is_of(value, now.topic_id, now.since_ms)):
                value = None
            node = self._node(place, there.get(where), now.since_ms, is_watched=place in watch)
            if isinstance(node, Failure) and value is None:
                unreadable.add(where)
                continue
            best = newest(value, None if isinstance(node, Failure) else node, in_step=in_step)
            if best is not None:
                shown.committed[where] = best
                if best is not value and not self.alone and where[1] < now.partitions:
                    further[where] = OffsetCommitValue(
                        offset=best.offset, commit_timestamp=self._clock.wall_ms(), topic_id=now.topic_id
                    )
        if unreadable:
            shown.unreadable = unreadable
        if further:
            self._coordinator.adopt_offsets(group_id, further)
        return shown

    def _node(
        self, place: Place, node: Found | Failure | None, since_ms: int, *, is_watched: bool
    ) -> Seen | Failure | None:
        """The offset in ZooKeeper, if the log has no newer one. Those before `since_ms` are of an earlier topic."""
        is_marked = self.mirror.marked(place)
        if is_marked and self.alone:
            on_its_way = self.mirror.offset_on_its_way(place)
            return None if on_its_way is None else Seen(on_its_way, self._clock.wall_ms())
        if is_marked or (is_watched and not self.alone):
            return None
        if not isinstance(node, Found):
            return node
        return Seen(node.offset, node.mtime_ms) if node.mtime_ms > since_ms else None  # of an earlier topic

    # --- deleting -----------------------------------------------------------------------------------------------------

    async def delete_groups(self, request: DeleteGroupsRequest) -> DeleteGroupsResponse:
        """Delete groups, the znodes first. A group with live members in ZooKeeper is not empty."""
        results = []
        for group in dict.fromkeys(request.groups_names):
            code, there = self._check_delete(group), 0
            if self.mirror.down and not misfit(group):
                code = code if code is ErrorCode.NON_EMPTY_GROUP else ErrorCode.COORDINATOR_NOT_AVAILABLE
            elif code in (ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND) and not misfit(group):
                try:
                    live, there = await self._in_thread(partial(self._remove_group, group))
                    code = ErrorCode.NON_EMPTY_GROUP if live else code
                except LostError as error:
                    self.mirror.lost(str(error))
                    code = ErrorCode.COORDINATOR_NOT_AVAILABLE
            if code is ErrorCode.NONE:
                answer = await _answer(
                    partial(self._coordinator.delete_groups, DeleteGroupsRequest(groups_names=[group]))
                )
                code = ErrorCode(answer.results[0].error_code)
            if code is ErrorCode.GROUP_ID_NOT_FOUND and there:
                code = ErrorCode.NONE  # it was in ZooKeeper only
            results.append(DeletableGroupResult(group_id=group, error_code=code))
        return DeleteGroupsResponse(results=results)

    def _check_delete(self, group: str) -> ErrorCode:
        try:
            self._coordinator.check_delete(group)
        except KafkaError as refusal:
            return refusal.code
        return ErrorCode.NONE

    async def delete_offsets(self, request: OffsetDeleteRequest) -> OffsetDeleteResponse:
        """Delete offsets, the znodes first."""
        group = request.group_id
        try:
            allowed = self._coordinator.deletable_topics(group, [topic.name for topic in request.topics])
        except KafkaError as refusal:
            return OffsetDeleteResponse(error_code=refusal.code)
        places = [
            (group, (topic.name, partition.partition_index))
            for topic in request.topics
            if topic.name in allowed
            for partition in topic.partitions
        ]
        removed: list[Place] = []
        if places and not misfit(group):
            if self.mirror.down:
                return OffsetDeleteResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
            try:
                removed = await self._in_thread(partial(self._remove, places))
            except LostError as error:
                self.mirror.lost(str(error))
                return OffsetDeleteResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
        answer: OffsetDeleteResponse = await _answer(partial(self._coordinator.delete_offsets, request))
        if answer.error_code == ErrorCode.GROUP_ID_NOT_FOUND and removed:  # it was in ZooKeeper only
            return OffsetDeleteResponse(
                topics=[
                    OffsetDeleteResponseTopic(
                        name=topic.name,
                        partitions=[OffsetDeleteResponsePartition(p.partition_index) for p in topic.partitions],
                    )
                    for topic in request.topics
                ]
            )
        return answer

    def _remove_group(self, group: str) -> tuple[int, int]:
        """Remove a group's offsets, if it has no live members: (live members, removed positions). Raises LostError."""
        self._connect()
        members = self._nodes.live_members(group)
        if members:
            return members, 0
        places = [(group, where) for where in self._nodes.listing(group).partitions]
        return 0, len(self._remove(places))

    def _remove(self, places: Sequence[Place], before_ms: int | None = None) -> list[Place]:
        """Remove positions, or those not written since `before_ms`. Returns those that are gone. Raises LostError."""
        self._connect()
        gone: list[Place] = []
        writes: dict[Place, Write] = {}
        for place, each in zip(places, self._nodes.read(places), strict=True):
            if each is None:
                gone.append(place)
            elif isinstance(each, Found) and (before_ms is None or each.mtime_ms < before_ms):
                writes[place] = Write(None, each)
        failed = self._nodes.write(writes) if writes else {}
        removed = [place for place in writes if place not in failed]
        if removed:
            self._nodes.tidy(removed)
        return [*gone, *removed] if before_ms is not None else removed

    # --- writing ------------------------------------------------------------------------------------------------------

    def _logged(self, partition: int) -> Iterator[Wanted]:
        """The offsets in the log for a partition of the offsets topic."""
        for group, where, value in self._coordinator.committed_offsets(partition):
            if not is_stream(group):
                yield Wanted((group, where), _offset(value), value.commit_timestamp)

    async def _write(self, batch: list[Wanted]) -> dict[Place, str]:
        failed = await self._in_thread(partial(self._write_now, batch), self._writer)
        if self._root_was_gone:  # all offsets were lost with it
            self._root_was_gone = False
            for partition in self._coordinator.shards.by_partition:
                self.loaded(partition)
        return failed

    def _write_now(self, batch: list[Wanted]) -> dict[Place, str]:
        """Write a batch. Runs in a thread. Raises LostError."""
        self._connect(probe=not batch)
        failed = {wanted.place: why for wanted in batch if (why := misfit(wanted.place[0]))}
        todo = {wanted.place: wanted for wanted in batch if wanted.place not in failed}
        removed = []
        for _ in range(MOST_RACES):
            places = list(todo)
            writes: dict[Place, Write] = {}
            for place, each in zip(places, self._nodes.read(places), strict=True):
                if isinstance(each, Failure):
                    failed[place] = each.reason
                elif (write := due(todo[place], each)) is not None:
                    writes[place] = write
            told = self._nodes.write(writes) if writes else {}
            removed += [place for place, write in writes.items() if write.offset is None and place not in told]
            failed |= {place: failure.reason for place, failure in told.items() if not failure.is_race}
            races = (place for place, failure in told.items() if failure.is_race)
            todo = {place: todo[place] for place in races if not self.mirror.is_let_go(place)}
            if not todo:
                break
        if removed:
            self._nodes.tidy(removed)
        if todo:
            self._connect(probe=True)
        return failed | dict.fromkeys(todo, "other clients keep changing it")

    def _connect(self, probe: bool = False) -> None:
        """Connect if necessary. Raises LostError if there is no connection, or no chroot."""
        with self._beginning:
            if not self._session_begun:
                self._session_begun = True
                self._session.begin()
        if probe or not self._root_seen:
            try:
                self._nodes.check_root()
            except NoRootError:
                self._root_was_gone = True
                raise
            self._root_seen = True

    async def _in_thread(self, call: Callable[[], R], limiter: trio.CapacityLimiter | None = None) -> R:
        return await trio.to_thread.run_sync(call, limiter=limiter or self._writer, abandon_on_cancel=True)


def due(wanted: Wanted, found: Found | None) -> Write | None:
    """The write that a position needs; None if it needs none."""
    if wanted.offset is None:
        is_older = found is not None and (wanted.since_ms is None or found.mtime_ms < wanted.since_ms)
        return Write(None, found) if is_older else None
    if found is None:
        return Write(wanted.offset, None)
    if found.offset == wanted.offset:
        return None
    is_newer = wanted.since_ms is None or found.offset < wanted.offset or found.mtime_ms < wanted.since_ms
    return Write(wanted.offset, found) if is_newer else None


def _offset(value: OffsetCommitValue | None) -> int | None:
    """The offset for the znode. A negative offset is no position for any client, and a znode cannot store a sign."""
    return None if value is None or value.offset < 0 else value.offset


async def _answer(ask: Callable[..., None]) -> Any:
    """Call the coordinator and wait for its reply."""
    replied = trio.Event()
    answers: list[Any] = []

    def reply(answer: Any) -> None:
        answers.append(answer)
        replied.set()

    ask(reply=reply)
    await replied.wait()
    return answers[0]
