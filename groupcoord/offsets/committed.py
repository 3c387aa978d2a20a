"""The offsets of groups: what is committed, what is pending, and what changes them.

A change (commit, deletion, expiry) is *prepared*: its partitions are counted as pending, and its records are handed to
the store. When they are durable or have failed it is *completed*: no longer pending, and committed if it succeeded. So
a commit is visible when it is durable, never before. Changes are completed in the order in which the store has them, so
memory and log cannot disagree; and an offset that is pending does not expire.

Offsets that a transaction has written (`change_in_transaction`) are *pending transactional*: they are in the log, and
count when its marker says so (`end_transaction`). Until then OffsetFetch with `require_stable` answers
UNSTABLE_OFFSET_COMMIT. A place counts once for each transaction, however often that commits it.

Where offsets are kept elsewhere too (`groupcoord.offsets.elsewhere`), what is committed is told there when it is in the
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
    """The offsets of one group. `unreadable` are those that are kept elsewhere, where nobody can read them."""

    unreadable: Set[TopicPartition] = frozenset()

    def __init__(self) -> None:
        self.committed: dict[TopicPartition, OffsetCommitValue] = {}
        self.pending: Counter[TopicPartition] = Counter()  # handed to the store, not durable yet
        self.pending_transactional: Counter[TopicPartition] = Counter()  # of transactions that have not ended
        self.topics: set[str] = set()  # of all of them; kept by the shard

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
        """All partitions that the log has, or is about to have, an offset for."""
        return list(dict.fromkeys([*self.committed, *self.pending, *self.pending_transactional]))

    @property
    def is_empty(self) -> bool:
        return not (self.committed or self.pending or self.pending_transactional)

    def _apply(self, where: TopicPartition, value: OffsetCommitValue | None) -> None:
        if value is None:
            self.committed.pop(where, None)
        else:
            self.committed[where] = value


NO_OFFSETS = Offsets()  # of a group that has none; never changed


class OffsetManager:
    """Changes the offsets of all groups that are coordinated here."""

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
        """Append what changes, by group, and apply it when it is durable; `done` is called then, or if it fails.

        With `tell` it is told elsewhere, too.
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
        """As `change`, for one group; what is durable then counts when the producer's transaction is committed."""
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
        """Forget the entry of a group without offsets; one that has some and never had members is a "simple" group."""
        shard.tidy(group_id)
        if group_id in shard.offsets and group_id not in shard.groups and self._shards.has(shard):
            self._shards.add(shard, ClassicGroup(group_id, self._around))

    def forget(self, shard: Shard, places: Mapping[str, Sequence[TopicPartition]], *, tell: bool = False) -> None:
        """Forget offsets that nobody waits to see gone."""
        gone = {group_id: [(where, None) for where in of] for group_id, of in places.items()}
        self.change(shard, gone, ignore, tell=tell)

    def adopt(self, shard: Shard, group_id: str, found: Mapping[TopicPartition, OffsetCommitValue]) -> None:
        """Take positions that are further elsewhere into the log, unless somebody is about to commit there."""
        offsets = shard.offsets.get(group_id) or NO_OFFSETS
        taken = [
            (where, value)
            for where, value in found.items()
            if where not in offsets.pending and where not in offsets.pending_transactional
        ]
        if taken:
            log.info("group %s: taking %d offsets from elsewhere into the log", group_id, len(taken))
            self.change(shard, {group_id: taken}, ignore, tell=False)

    def delete_group(
        self, shard: Shard, group: Group, places: Sequence[TopicPartition], done: Done, *, tell: bool = True
    ) -> None:
        """Delete the group and the offsets at these places, unless somebody joins or commits meanwhile."""

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
        """The marker of a transaction that wrote offsets into this partition is durable."""
        for (group_id, topic, index), value, others in shard.open_transactions.end(producer_id, committed=committed):
            where = topic, index
            shard.offsets_of(group_id).complete_transactional(where, value, committed)
            _supersede(shard, group_id, where, others)
            if committed and self.elsewhere is not None:
                self.elsewhere.changed(group_id, [(where, value)])
            shard.tidy(group_id)

    # --- loading ------------------------------------------------------------------------------------------------------

    def load(self, shard: Shard, image: PartitionImage) -> None:
        """What the log says."""
        for (group_id, topic, index), offset in image.offsets.items():
            shard.offsets_of(group_id).committed[topic, index] = offset
            shard.reads(group_id, topic)
        shard.open_transactions = image.open_transactions
        for group_id, topic, index in image.open_transactions.places():
            shard.offsets_of(group_id).pending_transactional[topic, index] += 1
            shard.reads(group_id, topic)

    def forget_stale(self, shard: Shard) -> None:
        """Offsets of topics that were deleted and made again since, and whose tombstones a crash has taken."""
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
        """Every offset of a shard that counts now. What changes while somebody goes through it may be in it or not."""
        shard = self._shards.by_partition.get(partition)
        for group_id in list(shard.offsets) if shard is not None else ():
            assert shard is not None
            for where, value in list((shard.offsets.get(group_id) or NO_OFFSETS).committed.items()):
                now = self._topics.by_name(where[0])
                if now is not None and is_of(value, now.topic_id, now.since_ms):
                    yield group_id, where, value


def is_of(offset: OffsetCommitValue | None, topic_id: bytes, since_ms: int = -1) -> bool:
    """Whether a commit may be one of the topic with that id. Commits of old clients do not say it: then time tells."""
    if offset is None or topic_id == ZERO_UUID:
        return True
    return offset.commit_timestamp > since_ms if offset.topic_id == ZERO_UUID else offset.topic_id == topic_id


def _note_topics(shard: Shard, group_id: str, changed: Sequence[Change]) -> None:
    for (topic, _), value in changed:
        if value is not None:  # what is deleted is there, or was never
            shard.reads(group_id, topic)


def _supersede(shard: Shard, group_id: str, where: TopicPartition, count: int) -> None:
    """So many open transactions have an offset there that counts no more, however they end."""
    for _ in range(count):
        shard.offsets_of(group_id).complete_transactional(where, None, False)


def ignore(error: ErrorCode) -> None:
    """What failed is tried again at the next occasion."""


def _count_down(counter: Counter[TopicPartition], where: TopicPartition) -> None:
    counter[where] -= 1
    if counter[where] <= 0:
        del counter[where]
