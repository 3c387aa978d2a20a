"""Regular notes for later metrics: ends of partitions, totals, recent latencies.

Every `INTERVAL` seconds the broker's state is walked in pieces of two milliseconds. Nothing here grows with time: notes
of partitions that no group reads any more are dropped, like those of deleted topics.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping
from typing import NamedTuple

import trio

from barnabas.broker.coordinators.groups import Groups
from barnabas.broker.metrics.lag import Ends
from barnabas.broker.metrics.requests import RequestCounts
from barnabas.broker.metrics.subscriptions import Subscriptions
from barnabas.broker.partitions import Partitions
from barnabas.broker.reading.offsets import Offsets
from barnabas.broker.workers import Yielder
from barnabas.storage.data_dir import DataDir
from barnabas.storage.vnode import Vnode
from barnabas.wire.aliases import TopicPartition

INTERVAL = 5.0
#: Notes of latencies that are kept, of which each is `QUANTILE_NOTES_EVERY` intervals old: the last five minutes.
QUANTILE_NOTES, QUANTILE_NOTES_EVERY = 5, 12


class Appended(NamedTuple):
    """Bytes and records appended to a topic since the broker's start."""

    bytes: int
    records: int


class GroupLag(NamedTuple):
    """A group's position in one partition, and its lag."""

    group: str
    topic: str
    partition: int
    offset: int
    records: int
    seconds: float


class Watch:
    """`run` is a task of the broker."""

    def __init__(
        self,
        groups: Groups,
        partitions: Partitions,
        offsets: Offsets,
        data_dir: DataDir,
        subscriptions: Subscriptions,
        counts: RequestCounts,
    ) -> None:
        self._groups, self._partitions, self._offsets = groups, partitions, offsets
        self._data_dir, self._subscriptions, self._counts = data_dir, subscriptions, counts
        #: Where partitions that other nodes lead ended when they were asked last.
        self._elsewhere: dict[TopicPartition, int] = {}
        self._ends: dict[TopicPartition, Ends] = {}
        self._last: dict[Vnode, tuple[int, int]] = {}
        self._bytes: Counter[str] = Counter()
        self._records: Counter[str] = Counter()
        self.total = Appended(0, 0)
        #: Earlier counts of each API's histogram, by API key; the oldest first.
        self._latencies: deque[dict[int, list[int]]] = deque(maxlen=QUANTILE_NOTES)

    async def run(self) -> None:
        """Take notes until cancelled."""
        passes = 0
        while True:
            await self.note_ends()
            await self.note_appended()
            await self._subscriptions.note()
            if passes % QUANTILE_NOTES_EVERY == 0:
                self._latencies.append(
                    {key: each.all_answered().seconds.counts for key, each in self._counts.by_api.items()}
                )
            passes += 1
            await trio.sleep(INTERVAL)

    # --- what was appended --------------------------------------------------------------------------------------------

    async def note_appended(self) -> Mapping[str, Appended]:
        """Add what each log has got since the last call; gives the totals of the existing topics.

        The count of a log that was opened again begins at 0: then all of it is new.
        """
        yielder = Yielder()
        seen: dict[Vnode, tuple[int, int]] = {}
        for vnode in list(self._data_dir.vnodes.values()):
            if vnode.loaded:
                now = seen[vnode] = vnode.appended
                before = self._last.get(vnode, (0, 0))
                if now < before:
                    before = (0, 0)
                size, records = now[0] - before[0], now[1] - before[1]
                if records:
                    self._bytes[vnode.topic] += size
                    self._records[vnode.topic] += records
                    self.total = Appended(self.total.bytes + size, self.total.records + records)
            await yielder()
        self._last = seen
        names = {topic for topic, _ in self._data_dir.vnodes}
        for name in [name for name in self._bytes if name not in names]:
            del self._bytes[name], self._records[name]
        return {name: Appended(size, self._records[name]) for name, size in self._bytes.items()}

    # --- groups -------------------------------------------------------------------------------------------------------

    async def note_ends(self) -> None:
        """Note the ends of the partitions for which groups have offsets."""
        yielder = Yielder()
        read: set[TopicPartition] = set()
        for index in list(self._groups.coordinator.shards.by_partition):
            for _, where, _ in self._groups.coordinator.committed_offsets(index):
                read.add(where)
                await yielder()
        self._elsewhere = await self._offsets.ends_elsewhere(read, INTERVAL)
        now = trio.current_time()
        for where in read:
            end = self._end(where)
            if end is not None:
                self._ends.setdefault(where, Ends()).note(now, end)
            await yielder()
        for where in [where for where in self._ends if where not in read]:
            del self._ends[where]

    def _end(self, where: TopicPartition) -> int | None:
        """The end of a partition, without opening its log; for another node's, the last end that it reported."""
        vnode = self._partitions.get(*where)
        if vnode is None:
            return self._elsewhere.get(where)
        return vnode.high_watermark if vnode.loaded and vnode.error is None else None

    async def lags(self) -> list[GroupLag]:
        """The lag of every group in each partition with a committed offset, if its log is open."""
        yielder = Yielder()
        found = []
        now = trio.current_time()
        for index in list(self._groups.coordinator.shards.by_partition):
            for group, where, committed in self._groups.coordinator.committed_offsets(index):
                end = self._end(where)
                if end is not None:
                    behind = max(0, end - committed.offset)
                    ends = self._ends.get(where)
                    seconds = 0.0 if not behind or ends is None else ends.age(now, committed.offset)
                    found.append(GroupLag(group, *where, committed.offset, behind, seconds))
                await yielder()
        return found

    # --- latencies ----------------------------------------------------------------------------------------------------

    def recent(self, api_key: int) -> list[int]:
        """The counts of an API's histogram in the last minutes."""
        now = self._counts.by_api[api_key].all_answered().seconds.counts
        before = self._latencies[0].get(api_key) if self._latencies else None
        return now if before is None else [after - since for after, since in zip(now, before, strict=True)]
