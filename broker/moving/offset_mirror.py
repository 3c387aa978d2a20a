"""Copies committed offsets from the log to ZooKeeper. It knows which are not written yet, and which commits wait for
that.

A changed position is *marked* with its newest offset, which replaces an older mark. So there are never more marks than
positions. One batch of marks is written at a time. After `LostError`, its marks wait again.

A commit waits until its marks are written, at most for the timeout. After a commit has timed out, the mirror is
*behind*: no commit waits until one batch has written all marks of its moment. New marks do not count, because clients
that commit all the time always leave some. The log is also compared with ZooKeeper, once for each partition of the
offsets topic (`compare`): when the partition was loaded, and when there are more marks than memory allows.

There is no I/O here: `write` does the work in a thread. One task runs the mirror.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator
from itertools import chain, islice
from typing import NamedTuple

import trio

from barnabas.broker.log import EventLog
from barnabas.client.zookeeper.offsets import Place
from barnabas.client.zookeeper.session import MOST_BYTES, MOST_OPERATIONS, LostError
from barnabas.groupcoord.deadlines import Deadlines

#: The most marks that are kept, and the most bytes of group names in them. Above these, the whole log is compared
#: instead.
MOST_MARKS, MOST_MARKED_BYTES = 100_000, 64 << 20
#: The most positions that are kept as refused.
MOST_REFUSED = 1000
#: The most marks that are examined to count which groups are behind.
MOST_COUNTED = 5000
FIRST_RETRY_SECONDS, LAST_RETRY_SECONDS = 0.25, 5.0


class Wanted(NamedTuple):
    """A position that ZooKeeper should have. Without an offset, its znode should be removed.

    `since_ms` is None after a commit. Otherwise it is the time at which the log got the offset. Then a larger offset in
    ZooKeeper that was written later is from another client and stays.
    """

    place: Place
    offset: int | None
    since_ms: int | None = None


#: Writes a batch in a thread. Gives the reasons for the places that cannot be written. Raises LostError.
WriteBatch = Callable[[list[Wanted]], Awaitable[dict[Place, str]]]


class _Waiter:
    """A commit that waits for some marks. It is called once, with the reason if they were not written."""

    __slots__ = ("at", "left", "places", "told")

    def __init__(self, told: Callable[[str | None], None], places: list[Place], at: float) -> None:
        self.told: Callable[[str | None], None] | None = told
        self.places, self.left, self.at = places, 0, at

    def tell(self, reason: str | None) -> None:
        told, self.told = self.told, None
        if told is not None:
            told(reason)


class _Mark:
    __slots__ = ("offset", "only_asked", "waiters")

    def __init__(self, offset: int | None, only_asked: bool) -> None:
        self.offset = offset
        self.only_asked = only_asked  # no log has this offset, so the mark is dropped when its waiters give up
        self.waiters: list[_Waiter] | None = None


class OffsetMirror:
    """`timeout` gives seconds. `positions` gives the offsets that the log has in a partition of the offsets topic."""

    def __init__(
        self,
        write: WriteBatch,
        positions: Callable[[int], Iterator[Wanted]],
        deadlines: Deadlines,
        timeout: Callable[[], float],
        log: EventLog,
        *,
        most_marks: int = MOST_MARKS,
    ) -> None:
        self._write, self._positions, self._timeout, self._log = write, positions, timeout, log
        self._most_marks = most_marks
        self._deadlines = deadlines
        self._deadline = deadlines.new(self._give_up_waiting)
        self._waiters: dict[_Waiter, None] = {}  # in the order of their deadlines
        self._marks: dict[Place, _Mark] = {}
        self._flying: dict[Place, _Mark] = {}
        self._dropped: dict[Place, _Mark] = {}  # freed in small steps: to free all takes as long as to make them
        self._bytes = 0
        self._to_compare: dict[int, None] = {}
        self._comparing: Iterator[Wanted] | None = None
        self._let_go: set[Place] = set()  # places in flight whose groups another coordinator has by now
        self._again: list[Wanted] = []  # entries of a comparison whose batch was lost
        self._took_all = True  # whether the current batch has all marks of its moment
        self._more = trio.Event()
        self._watches: list[set[Place]] = []
        self.down: str | None = None  # why ZooKeeper cannot be reached
        self.is_behind = False
        self.refused: dict[Place, str] = {}
        self.refused_more = False  # whether there are more refused positions than are kept

    # --- what is to be written ----------------------------------------------------------------------------------------

    @property
    def behind(self) -> int:
        """The number of positions that are known not to be in ZooKeeper yet."""
        return len(self._marks) + sum(place not in self._marks for place in self._flying)

    @property
    def unawaited(self) -> int:
        """The number of positions that are not in ZooKeeper yet, although clients count them as committed."""
        if self.is_behind:
            return self.behind
        return sum(not mark.waiters for mark in chain(self._marks.values(), self._flying.values()))

    @property
    def is_comparing(self) -> bool:
        return bool(self._to_compare)

    def in_step(self, partition: int) -> bool:
        """Whether ZooKeeper has all offsets of a partition of the offsets topic, except for marked ones."""
        return partition not in self._to_compare

    def marked(self, place: Place) -> bool:
        return place in self._marks or place in self._flying

    def offset_on_its_way(self, place: Place) -> int | None:
        """The newest offset of a marked place."""
        mark = self._marks.get(place) or self._flying[place]
        return mark.offset

    def behind_by_group(self) -> dict[str, int]:
        """By group, how many positions are not in ZooKeeper yet. Counts only the marks that wait longest."""
        waiting = (place for place in self._marks if place not in self._flying)
        return Counter(group for group, _ in islice(chain(self._flying, waiting), MOST_COUNTED))

    def compare(self, partition: int) -> None:
        """Compare all offsets in a partition of the log with ZooKeeper, and write those that are behind."""
        if next(iter(self._to_compare), None) == partition:
            self._comparing = None  # start again from its beginning
        self._to_compare[partition] = None
        self._more.set()

    def mark(self, place: Place, offset: int | None, *, only_asked: bool = False) -> None:
        """Note the newest offset of a place."""
        for watch in self._watches:
            watch.add(place)
        mark = self._marks.get(place)
        if mark is None:
            self._marks[place] = _Mark(offset, only_asked)
            self._bytes += len(place[0])
            self._more.set()
        else:
            mark.offset, mark.only_asked = offset, mark.only_asked and only_asked

    @property
    def is_full(self) -> bool:
        return len(self._marks) >= self._most_marks or self._bytes >= MOST_MARKED_BYTES

    def forget_marks(self, partitions: Iterable[int]) -> None:
        """Drop all marks because there are too many, and compare all partitions instead."""
        self._log.warning("offsets.zookeeper.many_behind", offsets=len(self._marks), effect="all offsets are compared")
        self._fall_behind("too much is on its way")
        self._dropped, self._marks, self._bytes = self._marks, {}, 0
        for partition in partitions:
            self.compare(partition)

    def let_go(self, partition: int, is_in: Callable[[str], bool]) -> None:
        """Give up the groups in a partition of the offsets topic. Their new coordinator compares all of it.

        Marks in flight may still be written, unless another client has written to ZooKeeper since.
        """
        for place in [place for place in self._marks if is_in(place[0])]:
            mark = self._marks.pop(place)
            self._bytes -= len(place[0])
            self._release(mark, "another node coordinates the group")
        for place in [place for place in self._flying if is_in(place[0])]:
            self._let_go.add(place)
            self._release(self._flying[place], "another node coordinates the group")
        for place in [place for place in self.refused if is_in(place[0])]:
            self.accept(place)
        if next(iter(self._to_compare), None) == partition:
            self._comparing, self._again = None, []
        self._to_compare.pop(partition, None)

    def is_let_go(self, place: Place) -> bool:
        """Whether another coordinator has a place in flight by now. The writing thread may call this."""
        return place in self._let_go

    def watch(self) -> set[Place]:
        """A set that gets every place that is marked from now on, until `unwatch`."""
        made: set[Place] = set()
        self._watches.append(made)
        return made

    def unwatch(self, watch: set[Place]) -> None:
        self._watches = [each for each in self._watches if each is not watch]

    # --- waiting ------------------------------------------------------------------------------------------------------

    def wait(self, places: Iterable[Place], told: Callable[[str | None], None]) -> None:
        """Call `told` once: when the marks of these places are written, or with the reason why they are not awaited."""
        if self.down or self.is_behind:
            told(self.down or "ZooKeeper is behind")
            return
        places = list(places)
        waiter = _Waiter(told, places, self._deadlines.clock() + self._timeout())
        for place in places:
            mark = self._marks.get(place) or self._flying.get(place)
            if mark is not None:
                if mark.waiters is None:
                    mark.waiters = []
                mark.waiters.append(waiter)
                waiter.left += 1
        if not waiter.left:
            told(next((self.refused[place] for place in places if place in self.refused), None))
            return
        self._waiters[waiter] = None
        if len(self._waiters) == 1:
            self._deadline.set(waiter.at)

    def _release(self, mark: _Mark, reason: str | None) -> None:
        waiters, mark.waiters = mark.waiters, None
        for waiter in waiters or ():
            waiter.left -= 1
            if reason is not None or not waiter.left:
                self._waiters.pop(waiter, None)
                waiter.tell(reason)

    def _give_up_waiting(self) -> None:
        """Called when the oldest waiter has timed out: from now on nobody waits."""
        self._fall_behind(f"not written within {self._timeout():g} s")

    def _fall_behind(self, reason: str) -> None:
        if not self.is_behind:
            self.is_behind = True
            self._log.warning("offsets.zookeeper.behind", offsets=self.behind, reason=reason)
        if not self._waiters:
            return
        waiting, self._waiters = self._waiters, {}
        self._deadline.cancel()
        for waiter in waiting:
            waiter.tell(reason)
        for place in chain.from_iterable(waiter.places for waiter in waiting):
            for marks in (self._marks, self._flying):
                if (mark := marks.get(place)) is not None:
                    mark.waiters = None
            if (mark := self._marks.get(place)) is not None and mark.only_asked:
                del self._marks[place]
                self._bytes -= len(place[0])

    def _catch_up(self) -> None:
        if self.is_behind and self._took_all and not self._to_compare:
            self.is_behind = False
            self._log.info("offsets.zookeeper.in_step", refused=len(self.refused))
        first = next(iter(self._waiters), None)
        if first is None:
            self._deadline.cancel()
        else:
            self._deadline.set(first.at)

    # --- the task -----------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Write one batch after the other."""
        wait = FIRST_RETRY_SECONDS
        while True:
            compared = self._take()
            if not self._flying and not compared and not self.down:
                self._catch_up()
                self._more = trio.Event()
                await self._more.wait()
                continue
            batch = [*compared, *(Wanted(place, mark.offset) for place, mark in self._flying.items())]
            try:
                failed = await self._write(batch)
            except LostError as error:
                self._put_back(compared)
                self.lost(str(error))
                await trio.sleep(wait)
                wait = min(wait * 2, LAST_RETRY_SECONDS)
                continue
            wait = FIRST_RETRY_SECONDS
            self._written(compared, failed)

    def lost(self, reason: str) -> None:
        """Note that ZooKeeper cannot be reached. No commit waits for it from now on."""
        if self.down is None:
            self._more.set()  # wakes the task, which tries again from now on
        self.down = reason
        self._fall_behind(reason)

    def _take(self) -> list[Wanted]:
        """Take the next batch: its marks are in flight from now on. Returns the entries that come from a comparison."""
        size = 0
        for place in self._marks:
            size += len(place[0].encode()) + len(place[1][0])
            if len(self._flying) >= MOST_OPERATIONS or (self._flying and size > MOST_BYTES // 2):
                break
            self._flying[place] = self._marks[place]
        for place in self._flying:
            del self._marks[place]
            self._bytes -= len(place[0])
        self._took_all = not self._marks
        for _ in range(min(len(self._dropped), 2 * MOST_OPERATIONS)):
            self._dropped.popitem()
        return self._next_compared()

    def _next_compared(self) -> list[Wanted]:
        if self._again:
            found, self._again = self._again, []
            return found
        found, size = [], 0
        while self._to_compare and not found:
            if self._comparing is None:
                self._comparing = self._positions(next(iter(self._to_compare)))
            for wanted in self._comparing:
                found.append(wanted)
                size += len(wanted.place[0].encode()) + len(wanted.place[1][0])
                if len(found) >= MOST_OPERATIONS or size > MOST_BYTES // 2:
                    break
            else:
                self._comparing = iter(())  # the comparison is done once these entries are written
                if not found:
                    self._comparing = None
                    del self._to_compare[next(iter(self._to_compare))]
        return found

    def _put_back(self, compared: list[Wanted]) -> None:
        """Put the entries of a lost batch back, before newer marks."""
        if compared and self._to_compare:
            self._again = compared
        flying, self._flying = self._flying, {}
        gone, self._let_go = self._let_go, set()
        for place, mark in flying.items():
            if place in gone and place not in self._marks:
                continue
            if place in self._marks:
                self._marks[place].waiters = [*(mark.waiters or ()), *(self._marks[place].waiters or ())] or None
            elif mark.waiters or not mark.only_asked:
                self._marks[place] = mark
                self._bytes += len(place[0])

    def _written(self, compared: list[Wanted], failed: dict[Place, str]) -> None:
        if self.down:
            self._log.info("offsets.zookeeper.up", after=self.down)
            self.down = None
        flying, self._flying = self._flying, {}
        self._let_go.clear()
        for place in (*flying, *(wanted.place for wanted in compared)):
            if place not in failed:
                self.accept(place)
        for place, reason in failed.items():
            self.refuse(place, reason)
        for place, mark in flying.items():
            self._release(mark, failed.get(place))
        self._catch_up()

    def refuse(self, place: Place, reason: str) -> None:
        """Note a position that cannot be written: only the log has it. The first is logged, and some are kept."""
        if not self.refused:
            group, (topic, partition) = place
            self._log.warning(
                "offsets.zookeeper.refused", group=group[:300], partition=f"{topic}-{partition}", reason=reason
            )
        if place in self.refused or len(self.refused) < MOST_REFUSED:
            self.refused[place] = reason
        else:
            self.refused_more = True

    def accept(self, place: Place) -> None:
        """Note that a position is written, or no longer wanted."""
        self.refused.pop(place, None)
        if not self.refused:
            self.refused_more = False
