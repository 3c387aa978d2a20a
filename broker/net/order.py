"""The order in which the requests of one connection take effect.

Kafka handles one request of a connection at a time, and clients rely on it. Here a connection handles further requests
while answers wait for an fsync or for other members. One rule keeps Kafka's promise: when a request is handled, the
effects of all earlier requests of its connection are visible to it, and durable if the policy requires it.

Each API states which parts of the broker's state it uses and which it changes (`broker.registry.api`). A request is
held back, with all later ones, while the answer of an earlier request is open that changes a part that it uses. So a
look-up after a produce waits for the fsync, but a produce after a produce does not.

Most handlers have done their work, in the order of the requests, when they return; only their answers come later. If
the work is not done when the handler returns (a coroutine, a validation in a thread), it holds back every request that
could notice: those that use or change the parts that it changes, and those that change the parts that it uses.
"""

from __future__ import annotations

from typing import Protocol

NOTHING = 0
#: Topics, their partitions, ids and configuration, and that of the broker.
METADATA = 1
#: The records that consumers see: high watermarks and log start offsets.
RECORDS = 2
#: The existence of groups.
GROUPS = 4
#: The members of groups, as operators see them. Members' own requests use GROUPS only: a member that leaves or sends a
#: heartbeat must not wait until a rebalance is over.
MEMBERS = 8
#: Committed offsets.
OFFSETS = 16
#: Producers with a transactional id, and the partitions of their transactions.
TRANSACTIONS = 32
#: The rights of clients. Every request uses them.
ACLS = 64
EVERYTHING = METADATA | RECORDS | GROUPS | MEMBERS | OFFSETS | TRANSACTIONS | ACLS


class Effects(Protocol):
    """The parts that an API uses and changes."""

    @property
    def uses(self) -> int: ...

    @property
    def changes(self) -> int: ...


class OpenRequest(Protocol):
    """A request whose answer may still be open."""

    @property
    def is_open(self) -> bool: ...

    @property
    def is_done(self) -> bool:
        """Whether it has had its effects, so that only the answer is missing."""


# Answered requests are forgotten at the latest when there are this many requests.
_MOST_KNOWN = 200


class RequestOrder:
    """The open requests of one connection. `holds` says whether the next one must wait for one of them."""

    __slots__ = ("_changed", "_open", "_untouchable")

    def __init__(self) -> None:
        self._open: list[tuple[OpenRequest, Effects]] = []
        # Supersets of the parts that open requests change, and of the parts that must not change before they are done.
        self._changed = self._untouchable = NOTHING

    def add(self, request: OpenRequest, effects: Effects) -> None:
        """Add a handled request whose answer is open."""
        done = request.is_done
        if done and not effects.changes:
            return  # it holds back no request
        if len(self._open) >= _MOST_KNOWN:
            self._look_again()
        self._open.append((request, effects))
        self._changed |= effects.changes
        if not done:
            self._untouchable |= effects.uses | effects.changes

    def forget(self) -> None:
        """Forget all requests, as they are answered. Memory that is reused at once is faster than fresh memory."""
        if self._open:
            self._open.clear()
            self._changed = self._untouchable = NOTHING

    def holds(self, effects: Effects) -> bool:
        """Whether a request with these effects must wait."""
        if not self._overlaps(effects):
            return False
        self._look_again()
        return self._overlaps(effects)

    def _overlaps(self, effects: Effects) -> bool:
        return bool(effects.uses & self._changed or effects.changes & self._untouchable)

    def _look_again(self) -> None:
        self._open = [each for each in self._open if each[0].is_open]
        self._changed = self._untouchable = NOTHING
        for request, effects in self._open:
            self._changed |= effects.changes
            if not request.is_done:
                self._untouchable |= effects.uses | effects.changes
