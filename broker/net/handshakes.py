"""Scheduling of TLS handshakes: a step of one takes as much CPU as fifty small requests, and costs a stranger next to
nothing to ask for.

- One step runs at a time, as further work of the poller (`poller.again`): between two steps all others have their turn.
  Clients take turns, too, so that a thousand connections of one client delay another client by one step only.
- At most `MOST_BEGUN` handshakes have begun and are not done, as OpenSSL holds 45 KiB for each. At the limit, a further
  handshake of the client with the most waits. For a client that has fewer, the client with the most loses the handshake
  that it began first.
- A handshake that takes longer than `SECONDS` ends its connection. The time that it waits for its turn does not count.
"""

from __future__ import annotations

from typing import Protocol

from barnabas.broker.net.poller import Poller

MOST_BEGUN = 1024
SECONDS = 30.0


class Handshake(Protocol):
    """One connection's handshake."""

    client: str

    def step(self) -> None:
        """Continue with the bytes received. Must not raise."""

    def give_up(self, reason: str) -> None:
        """End the connection."""


_ByClient = dict[str, dict[Handshake, None]]


class Handshakes:
    """The handshakes of all listeners of a broker."""

    def __init__(self, poller: Poller) -> None:
        self._poller = poller
        # All are by client, in the order of the clients' next turns; for each client, in the order of arrival.
        self._begun: _ByClient = {}
        self._going_on: _ByClient = {}  # begun, with bytes to continue with
        self._waiting: _ByClient = {}  # not begun yet
        self._count = 0
        self._begins_next = False

    @property
    def begun(self) -> int:
        """Handshakes that have begun and are not done."""
        return self._count

    def ready(self, handshake: Handshake) -> None:
        """A handshake has bytes to continue with."""
        has_begun = handshake in self._begun.get(handshake.client, ())
        (self._going_on if has_begun else self._waiting).setdefault(handshake.client, {}).setdefault(handshake)
        self._poller.again(self._step)

    def ended(self, handshake: Handshake) -> None:
        """A handshake is done, or its connection is closed."""
        _drop(self._going_on, handshake)
        _drop(self._waiting, handshake)
        if _drop(self._begun, handshake):
            self._count -= 1
            if self._waiting:
                self._poller.again(self._step)

    def _step(self) -> None:
        """Continue the handshake whose turn it is; begun and new ones alternate."""
        self._begins_next = not self._begins_next
        handshake = (self._next_new() if self._begins_next else None) or self._next_begun() or self._next_new()
        if handshake is not None:
            handshake.step()
            if self._going_on or self._waiting:
                self._poller.again(self._step)

    def _next_begun(self) -> Handshake | None:
        return _take(self._going_on, next(iter(self._going_on))) if self._going_on else None

    def _next_new(self) -> Handshake | None:
        """The next handshake that may begin."""
        if not self._waiting:
            return None
        client = next(iter(self._waiting))
        if self._count >= MOST_BEGUN:
            client = min(self._waiting, key=self._number)
            most = max(self._begun, key=self._number)
            if self._number(most) <= self._number(client) + 1:
                return None
            next(iter(self._begun[most])).give_up("its place was given to another client's handshake")
        handshake = _take(self._waiting, client)
        self._begun.setdefault(client, {})[handshake] = None
        self._count += 1
        return handshake

    def _number(self, client: str) -> int:
        return len(self._begun.get(client, ()))


def _take(by_client: _ByClient, client: str) -> Handshake:
    """Take the client's first handshake; the client's next turn comes after all others."""
    mine = by_client.pop(client)
    handshake = next(iter(mine))
    del mine[handshake]
    if mine:
        by_client[client] = mine
    return handshake


def _drop(by_client: _ByClient, handshake: Handshake) -> bool:
    """Remove a handshake; whether it was there."""
    mine = by_client.get(handshake.client, {})
    if handshake not in mine:
        return False
    del mine[handshake]
    if not mine:
        del by_client[handshake.client]
    return True
