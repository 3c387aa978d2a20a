"""The offsets of groups: committed and pending ones, and the operations that change them.

A change (commit, deletion, expiry) is first *prepared*: its partitions count as pending, and its records go to the
store. When they are durable or have failed it is *completed*: no longer pending, and committed if it succeeded. So a
commit becomes visible when it is durable, never before. Changes are completed in the store's order, so memory and log
cannot disagree. A pending offset does not expire.

Offsets that a transaction has written (`change_in_transaction`) are *pending transactional*: they are in the log, and
count from its end marker on (`end_transaction`). Until then, OffsetFetch with `require_stable` answers
UNSTABLE_OFFSET_COMMIT. A partition counts once for each transaction, however often that commits it.

If offsets are kept in a second store, too (`groupcoord.offsets.elsewhere`), it gets a commit once the commit is in the
log.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from typing import TYPE_CHECKING

from barnabas.groupcoord.classic.group import ClassicGroup
from barnabas.groupcoord.group import Group, Surroundings
from barnabas.groupcoord.log.image import PartitionImage
from barnabas.groupcoord.log.records import CoordinatorRecord, offset_record
from barnabas.groupcoord.log.store import ProducerEpoch
from barnabas.groupcoord.offsets.elsewhere import Change, Done, Elsewhere
from barnabas.groupcoord.topics import Topic, Topics
from barnabas.wire.aliases import TopicPartition
from barnabas.wire.errors import ErrorCode
from barnabas.wire.records.offset_commit import OffsetCommitValue
from barnabas.wire.types import ZERO_UUID

if TYPE_CHECKING:
    from barnabas.groupcoord.log.shard import Shard, Shards

log = logging.getLogger(__name__)


class Offsets:
    """The offsets of one group. `unreadable` are those kept in a second store that currently cannot be read."""

    unreadable: Set[TopicPartition] = frozenset()

    def __init__(self) -> None:
        self.committed: dict[TopicPartition, OffsetCommitValue] = {}
        self.pending: Counter[TopicPartition] = Counter()  # passed to the store, not durable yet
        self.pending_transactional: Counter[TopicPartition] = Counter()  # of open transactions
        self.topics: set[str] = set()  # the topics of all of these; maintained by the shard

    def prepare(self, changed: Sequence[Change]) -> None:
        self.pending.update([where for where, _ in changed])

    def complete(self, changed: Sequence[Change], error: ErrorCode) -> None:
        for where, value in changed:
            _count_down(self.pending, where)
            if not error:
                self._apply(where, value)

    def unprepare(self, changed: Sequence[Change]) -> None:
        for where, _ in changed:
            _count_down(self.pending, where)

    def complete_transactional(self, where: TopicPartition, value: OffsetCommitValue | None, committed: bool) -> None:
        _count_down(self.pending_transactional, where)
        if committed:
            self._apply(where, value)

    def places(self) -> list[TopicPartition]:
        """All partitions for which the log has an offset, or is about to have one."""
        return list(dict.fromkeys([*self.committed, *self.pending, *self.pending_transactional]))

    @property
    def is_empty(self) -> bool:
        return not (self.committed or self.pending or self.pending_transactional)

    def _apply(self, where: TopicPartition, value: OffsetCommitValue | None) -> None:
        if value is None:
            self.committed.pop(where, None)
        else:
            self.committed[where] = value


NO_OFFSETS = Offsets()  # for a group without offsets; never modified


class OffsetManager:
    """Changes the offsets of all groups on this broker."""

    def __init__(self, shards: Shards, topics: Topics, around: Surroundings) -> None:
        self._shards = shards
        self._topics = topics
        self._around = around
        self.elsewhere: Elsewhere | None = None

    # --- changes ------------------------------------------------------------------------------------------------------

    def change(
        self,
        shard: Shard,
        changes: Mapping[str, Sequence[Change]],
        done: Done,
        *,
        also: Sequence[CoordinatorRecord] = (),
        tell: bool = True,
    ) -> None:
        """Append changes, by group, and apply them when they are durable. Then, or after a failure, `done` is called.

        With `tell`, the second store gets the changes, too.
        """
        records = [
            offset_record(group_id, topic, index, value)
            for group_id, changed in changes.items()
            for (topic, index), value in changed
        ]
        for group_id, changed in changes.items():
            shard.offsets_of(group_id).prepare(changed)
            _note_topics(shard, group_id, changed)

        def durable(error: ErrorCode) -> None:
            for group_id, changed in changes.items():
                shard.offsets_of(group_id).complete(changed, error)
                if not error:
                    for where, _ in changed:
                        _supersede(shard, group_id, where, shard.open_transactions.supersede((group_id, *where)))
                    if self.elsewhere is not None and tell:
                        self.elsewhere.changed(group_id, changed)
                self._tidy(shard, group_id)
            done(error)

        self._shards.append(shard, [*records, *also], durable)

    def change_in_transaction(
        self, shard: Shard, group_id: str, changed: Sequence[Change], producer: ProducerEpoch, done: Done
    ) -> None:
        """Like `change`, for one group. The durable changes count when the producer's transaction is committed."""
        records = [offset_record(group_id, topic, index, value) for (topic, index), value in changed]
        offsets = shard.offsets_of(group_id)
        offsets.prepare(changed)
        _note_topics(shard, group_id, changed)

        def durable(error: ErrorCode) -> None:
            offsets = shard.offsets_of(group_id)
            offsets.unprepare(changed)
            if not error:
                for where, value in changed:
                    if shard.open_transactions.write(producer.producer_id, (group_id, *where), value):
                        offsets.pending_transactional[where] += 1
            self._tidy(shard, group_id)
            done(error)

        self._shards.append(shard, records, durable, producer=producer)

    def _tidy(self, shard: Shard, group_id: str) -> None:
        """Remove a group's entry if it has no offsets. One that never had members becomes a "simple" group."""
        shard.tidy(group_id)
        if group_id in shard.offsets and group_id not in shard.groups and self._shards.has(shard):
            self._shards.add(shard, ClassicGroup(group_id, self._around))

    def forget(self, shard: Shard, places: Mapping[str, Sequence[TopicPartition]], *, tell: bool = False) -> None:
        """Forget offsets without a callback."""
        gone = {group_id: [(where, None) for where in of] for group_id, of in places.items()}
        self.change(shard, gone, ignore, tell=tell)

    def adopt(self, shard: Shard, group_id: str, found: Mapping[TopicPartition, OffsetCommitValue]) -> None:
        """Take positions into the log that are further elsewhere, unless a commit for them is pending."""
        offsets = shard.offsets.get(group_id) or NO_OFFSETS
        taken = [
            (where, value)
            for where, value in found.items()
            if where not in offsets.pending and where not in offsets.pending_transactional
        ]
        if taken:
            log.info("group %s: copying %d offsets from the second store into the log", group_id, len(taken))
            self.change(shard, {group_id: taken}, ignore, tell=False)

    def delete_group(
        self, shard: Shard, group: Group, places: Sequence[TopicPartition], done: Done, *, tell: bool = True
    ) -> None:
        """Delete the group and its offsets for these partitions, unless somebody joins or commits meanwhile."""

        def durable(error: ErrorCode) -> None:
            is_left = shard.groups.get(group.group_id) is group and group.is_empty
            if not error and is_left and group.group_id not in shard.offsets:
                self._shards.remove(shard, group)
                group.shut_down(ErrorCode.UNKNOWN_MEMBER_ID)
            done(error)

        tombstones = group.tombstones()
        if not places and not tombstones:
            durable(ErrorCode.NONE)
            return
        log.info("group %s: deleting it with %d offsets", group.group_id, len(places))
        self.change(shard, {group.group_id: [(where, None) for where in places]}, durable, also=tombstones, tell=tell)

    # --- transactions -------------------------------------------------------------------------------------------------

    def end_transaction(self, shard: Shard, producer_id: int, *, committed: bool) -> None:
        """The end marker of a transaction that wrote offsets to this partition is durable."""
        for (group_id, topic, index), value, others in shard.open_transactions.end(producer_id, committed=committed):
            where = topic, index
            shard.offsets_of(group_id).complete_transactional(where, value, committed)
            _supersede(shard, group_id, where, others)
            if committed and self.elsewhere is not None:
                self.elsewhere.changed(group_id, [(where, value)])
            shard.tidy(group_id)

    # --- loading ------------------------------------------------------------------------------------------------------

    def load(self, shard: Shard, image: PartitionImage) -> None:
        """Load the offsets from the log's image."""
        for (group_id, topic, index), offset in image.offsets.items():
            shard.offsets_of(group_id).committed[topic, index] = offset
            shard.reads(group_id, topic)
        shard.open_transactions = image.open_transactions
        for group_id, topic, index in image.open_transactions.places():
            shard.offsets_of(group_id).pending_transactional[topic, index] += 1
            shard.reads(group_id, topic)

    def forget_stale(self, shard: Shard) -> None:
        """Forget offsets of topics that were deleted and created again, if a crash has lost their tombstones."""
        stale: dict[str, list[TopicPartition]] = {}
        known: dict[str, Topic | None] = {}
        for group_id, offsets in shard.offsets.items():
            for where, offset in offsets.committed.items():
                if where[0] not in known:
                    known[where[0]] = self._topics.by_name(where[0])
                now = known[where[0]]
                if now is not None and not is_of(offset, now.topic_id, now.since_ms):
                    stale.setdefault(group_id, []).append(where)
        if stale:
            log.info("partition %d: forgetting offsets of deleted topics in %d groups", shard.partition, len(stale))
            self.forget(shard, stale)

    def committed(self, partition: int) -> Iterator[tuple[str, TopicPartition, OffsetCommitValue]]:
        """Every valid committed offset of a shard. Changes during the iteration may or may not be included."""
        shard = self._shards.by_partition.get(partition)
        for group_id in list(shard.offsets) if shard is not None else ():
            assert shard is not None
            for where, value in list((shard.offsets.get(group_id) or NO_OFFSETS).committed.items()):
                now = self._topics.by_name(where[0])
                if now is not None and is_of(value, now.topic_id, now.since_ms):
                    yield group_id, where, value


def is_of(offset: OffsetCommitValue | None, topic_id: bytes, since_ms: int = -1) -> bool:
    """Whether a commit may belong to the topic with this id. Old clients' commits have no id: then the time decides."""
    if offset is None or topic_id == ZERO_UUID:
        return True
    return offset.commit_timestamp > since_ms if offset.topic_id == ZERO_UUID else offset.topic_id == topic_id


def _note_topics(shard: Shard, group_id: str, changed: Sequence[Change]) -> None:
    for (topic, _), value in changed:
        if value is not None:  # an offset to delete was in the log, or never existed
            shard.reads(group_id, topic)


def _supersede(shard: Shard, group_id: str, where: TopicPartition, count: int) -> None:
    """In `count` open transactions, an offset for this partition no longer counts, however they end."""
    for _ in range(count):
        shard.offsets_of(group_id).complete_transactional(where, None, False)


def ignore(error: ErrorCode) -> None:
    """Ignore a failure: the next occasion retries."""


def _count_down(counter: Counter[TopicPartition], where: TopicPartition) -> None:
    counter[where] -= 1
    if counter[where] <= 0:
        del counter[where]
