"""When a committed offset is old enough to be forgotten (KIP-211)."""

from __future__ import annotations

from barnabas.groupcoord.group import ClassicGroup, State
from barnabas.groupcoord.shard import Offsets, TopicPartition
from barnabas.wire.records.offset_commit import OffsetCommitValue


def expired(group: ClassicGroup, offsets: Offsets, now_ms: int, retention_ms: int) -> list[TopicPartition]:
    """The partitions whose offsets have expired.

    Time counts from the commit, but in a group that has had members from when it became empty. While a group has
    members only the offsets of topics that it does not consume can expire, and only if the subscriptions are known.
    A commit that brought its own retention (up to version 4 of the request) keeps to that.
    """
    since_ms: int | None = None
    if group.protocol_type is not None:
        if group.state is State.EMPTY:
            since_ms = group.state_timestamp_ms
        elif not (group.state is State.STABLE and group.is_consumer_group and group.subscribed is not None):
            return []

    def is_old(offset: OffsetCommitValue) -> bool:
        if offset.expire_timestamp >= 0:
            return now_ms >= offset.expire_timestamp
        return now_ms - (offset.commit_timestamp if since_ms is None else since_ms) >= retention_ms

    return [
        where
        for where, offset in offsets.committed.items()
        if is_old(offset)
        and where not in offsets.in_flight
        and where not in offsets.unstable
        and not group.is_subscribed(where[0])
    ]
