"""When committed offsets are old enough to be forgotten (KIP-211), and groups that have nothing left with them."""

from __future__ import annotations

import logging

from barnabas.groupcoord.group import Group, Surroundings
from barnabas.groupcoord.offsets import NO_OFFSETS, OffsetManager, Offsets, ignore
from barnabas.groupcoord.shard import Shards
from barnabas.wire.aliases import TopicPartition
from barnabas.wire.records.offset_commit import OffsetCommitValue

log = logging.getLogger(__name__)


class Retention:
    """Looks at all groups every offsets.retention.check.interval.ms."""

    def __init__(self, shards: Shards, offsets: OffsetManager, around: Surroundings) -> None:
        self._shards = shards
        self._offsets = offsets
        self._around = around
        self._deadline = around.deadlines.new(self._check)
        self._set_next()

    def _set_next(self) -> None:
        interval = self._around.config.offsets_retention_check_interval_ms / 1000
        self._deadline.set(self._around.deadlines.clock() + interval)

    def _check(self) -> None:
        self._set_next()
        now_ms = self._around.wall_ms()
        for group in list(self._shards.groups.values()):
            shard = self._shards.of(group.group_id)
            offsets = shard.offsets.get(group.group_id) or NO_OFFSETS
            old = expired(group, offsets, now_ms, self._around.config.offsets_retention_ms)
            nothing_left = (
                len(old) == len(offsets.committed) and not offsets.pending and not offsets.pending_transactional
            )
            if group.is_idle and nothing_left:
                self._offsets.delete_group(shard, group, old, ignore)
            elif old:
                log.info("group %s: %d offsets expired", group.group_id, len(old))
                self._offsets.forget(shard, {group.group_id: old})


def expired(group: Group, offsets: Offsets, now_ms: int, retention_ms: int) -> list[TopicPartition]:
    """The partitions whose offsets have expired.

    A commit that brought its own retention (up to version 4 of the request) keeps to that; for the others the group
    says from when time counts.
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
