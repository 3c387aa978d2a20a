"""Decides when committed offsets have expired (KIP-211), and with them groups that have nothing else left."""

from __future__ import annotations

import logging

from barnabas.groupcoord.group import Group, Surroundings
from barnabas.groupcoord.log.shard import Shards
from barnabas.groupcoord.offsets.committed import NO_OFFSETS, OffsetManager, Offsets, ignore
from barnabas.groupcoord.offsets.elsewhere import Elsewhere, Places
from barnabas.wire.aliases import TopicPartition
from barnabas.wire.records.offset_commit import OffsetCommitValue
from barnabas.wire.streams.keys import is_stream

log = logging.getLogger(__name__)
# How many offsets are removed from the second store at a time.
_MOST_AT_ONCE = 500
# How many offsets are checked before others get their turn.
_LOOKED_AT_ONCE = 2000


class Retention:
    """Checks all groups every offsets.retention.check.interval.ms."""

    def __init__(self, shards: Shards, offsets: OffsetManager, around: Surroundings) -> None:
        self._shards = shards
        self._offsets = offsets
        self._around = around
        #: The groups that the current round has yet to check.
        self._left: list[str] = []
        self._deadline = around.deadlines.new(self._check)
        self._set_next()

    def _set_next(self) -> None:
        interval = self._around.config.offsets_retention_check_interval_ms / 1000
        self._deadline.set(self._around.deadlines.clock() + (0 if self._left else interval))

    def _check(self) -> None:
        """Check some groups; the next ones follow when others have had their turn."""
        self._left = self._left or list(reversed(self._shards.groups))
        elsewhere = self._offsets.elsewhere
        beside: list[tuple[str, list[TopicPartition]]] = []
        looked_at = 0
        while self._left and looked_at < _LOOKED_AT_ONCE:
            group = self._shards.groups.get(self._left.pop())
            if group is None:  # it is gone meanwhile
                continue
            looked_at += 1 + self._count(group)
            old = self._expired(group)
            if old and elsewhere is not None and not elsewhere.alone:
                beside.append((group.group_id, old))
            else:
                self._forget(group, old)
        if elsewhere is not None:
            self._forget_beside(elsewhere, beside)
        self._set_next()

    def _count(self, group: Group) -> int:
        return len((self._shards.of(group.group_id).offsets.get(group.group_id) or NO_OFFSETS).committed)

    def _expired(self, group: Group) -> list[TopicPartition]:
        if is_stream(group.group_id):  # a stream continues from its offsets, however old they are
            return []
        offsets = self._shards.of(group.group_id).offsets.get(group.group_id) or NO_OFFSETS
        return expired(group, offsets, self._around.wall_ms(), self._around.config.offsets_retention_ms)

    def _forget(self, group: Group, old: list[TopicPartition]) -> None:
        shard = self._shards.of(group.group_id)
        offsets = shard.offsets.get(group.group_id) or NO_OFFSETS
        nothing_left = len(old) == len(offsets.committed) and not offsets.pending and not offsets.pending_transactional
        if group.is_idle and nothing_left:
            self._offsets.delete_group(shard, group, old, ignore, tell=False)
        elif old:
            log.info("group %s: %d offsets expired", group.group_id, len(old))
            self._offsets.forget(shard, {group.group_id: old})

    def _forget_beside(self, elsewhere: Elsewhere, groups: list[tuple[str, list[TopicPartition]]]) -> None:
        """Delete from the second store first, as offsets left there would return. Those recently written there stay."""
        some: dict[str, list[TopicPartition]] = {}
        while groups and sum(map(len, some.values())) < _MOST_AT_ONCE:
            group_id, old = groups.pop()
            some[group_id] = old[:_MOST_AT_ONCE]
        if not some:
            return

        def gone(places: Places | None) -> None:
            if places is None:  # the next check retries
                return
            for group_id, of in places.items():
                group = self._shards.groups.get(group_id)
                if group is not None:
                    removed = set(of)
                    self._forget(group, [where for where in self._expired(group) if where in removed])
            self._forget_beside(elsewhere, groups)

        elsewhere.clear(some, self._around.wall_ms() - self._around.config.offsets_retention_ms, gone)


def expired(group: Group, offsets: Offsets, now_ms: int, retention_ms: int) -> list[TopicPartition]:
    """The partitions with expired offsets.

    A commit with its own retention (up to version 4 of the request) follows that; for the others the group says when
    their age began.
    """
    condition = group.offset_expiration()
    if condition is None:
        return []
    since_ms = condition.since_ms

    def is_old(offset: OffsetCommitValue) -> bool:
        if offset.expire_timestamp >= 0:
            return now_ms >= offset.expire_timestamp
        return now_ms - (offset.commit_timestamp if since_ms is None else since_ms) >= retention_ms

    return [
        where
        for where, offset in offsets.committed.items()
        if is_old(offset)
        and where not in offsets.pending
        and where not in offsets.pending_transactional
        and not group.is_subscribed(where[0])
    ]
