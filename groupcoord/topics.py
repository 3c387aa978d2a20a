"""The existing topics, as a coordinator sees them."""

from __future__ import annotations

from typing import NamedTuple, Protocol


class Topic(NamedTuple):
    """What a coordinator needs to know about a topic.

    `since_ms` is when an earlier topic of the same name was last deleted. An offset committed before that, without a
    topic id, was for the earlier topic.
    """

    name: str
    topic_id: bytes
    partitions: int
    since_ms: int = -1


class Topics(Protocol):
    def by_name(self, name: str) -> Topic | None: ...

    def by_id(self, topic_id: bytes) -> Topic | None: ...
