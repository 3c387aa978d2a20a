"""In which order the requests of one connection take effect.

Kafka has one request of a connection in hand at a time, and clients rely on it. Here a connection goes on while answers
wait for an fsync or for other members, so one rule keeps Kafka's promise: when a request is handled, the effects of all
earlier requests of its connection are visible to it, and durable where the policy says so.

Each API states which parts of the broker's state it uses and which it changes (`broker.registry.api`). A request is
held back, and all behind it, while an earlier answer is open that changes what this one uses. So a look-up after a
produce waits for the fsync, and produce after produce does not.

Most handlers have done their work, in the order of the requests, when they return; only their answers come later. What
is not yet done when the handler returns (a coroutine, a validation in a thread) holds back whoever would see the
difference: what uses or changes what it changes, and what changes what it uses.
"""

from __future__ import annotations

from typing import Protocol

NOTHING = 0
#: Topics, their partitions, ids and configuration, and that of the broker.
METADATA = 1
#: The records that consumers see: high watermarks and log start offsets.
RECORDS = 2
#: Which groups there are.
GROUPS = 4
#: Their members, as operators see them. Members' own requests use GROUPS only: a member that leaves, or that says that
#: it is alive, must not wait until a rebalance is over.
MEMBERS = 8
#: Committed offsets.
OFFSETS = 16
#: Producers with a transactional id, and what belongs to their transactions.
TRANSACTIONS = 32
#: Who may do what. Every request uses it.
ACLS = 64
EVERYTHING = METADATA | RECORDS | GROUPS | MEMBERS | OFFSETS | TRANSACTIONS | ACLS


class Effects(Protocol):
    """What an API does."""

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
        """Whether it has had its effects; only the answer is awaited."""


# Requests that have been answered are forgotten at the latest when there are this many.
_MOST_KNOWN = 200


class RequestOrder:
    """The open requests of one connection. `holds` says whether the next one must wait for one of them."""

    __slots__ = ("_changed", "_open", "_untouchable")

    def __init__(self) -> None:
        self._open: list[tuple[OpenRequest, Effects]] = []
        # Supersets of what the open requests change, and of what must not be changed before they are done.
        self._changed = self._untouchable = NOTHING

    def add(self, request: OpenRequest, effects: Effects) -> None:
        """A request has been handled, and its answer is open."""
        done = request.is_done
        if done and not effects.changes:
            return  # it holds nobody
        if len(self._open) >= _MOST_KNOWN:
            self._look_again()
        self._open.append((request, effects))
        self._changed |= effects.changes
        if not done:
            self._untouchable |= effects.uses | effects.changes

    def forget(self) -> None:
        """All requests have their answers. Memory that is used again at once is faster than fresh one."""
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
