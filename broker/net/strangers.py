"""Connections whose clients have yet to say who they are, or to end their TLS handshake: they cost a stranger nothing.

Together they may be a part of all connections, so that those who are known keep the rest. A further one takes the place
of another: of the client with most of them (an address, `security.client_of`), the one that came first. So somebody who
opens thousands of connections is in its own way, and a newcomer from elsewhere has the time that a login takes.
"""

from __future__ import annotations

from typing import Protocol

# Of all connections that there may be, and at most so many: each may hold some 32 KiB (docs/limits.md).
PART = 4
LEAST, MOST = 4, 4096


class Stranger(Protocol):
    """A connection; `origin` is the client that it came from."""

    origin: str

    def close(self, reason: str | None = None) -> None:
        """End it; `reason` is for the log."""


class Strangers:
    """All of one broker."""

    def __init__(self) -> None:
        self._of: dict[str, dict[Stranger, None]] = {}  # by client; of each, the first that came first
        # Clients by how many they have; of those with as many, the first that got there first.
        self._with: dict[int, dict[str, None]] = {}
        self._most = 0
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, stranger: Stranger, connections: int) -> None:
        """One more, which closes another one where there are too many for so many `connections`."""
        while self._count >= max(LEAST, min(connections // PART, MOST)):
            client = next(iter(self._with[self._most]))
            first = next(iter(self._of[client]))
            self.remove(first)
            first.close("another client that has yet to log in took its place")
        mine = self._of.setdefault(stranger.origin, {})
        mine[stranger] = None
        self._count += 1
        self._moved(stranger.origin, len(mine) - 1, len(mine))

    def remove(self, stranger: Stranger) -> None:
        """It is known now, or gone."""
        mine = self._of.get(stranger.origin, {})
        if stranger not in mine:
            return
        del mine[stranger]
        self._count -= 1
        self._moved(stranger.origin, len(mine) + 1, len(mine))
        if not mine:
            del self._of[stranger.origin]

    def _moved(self, client: str, before: int, now: int) -> None:
        if before:
            del self._with[before][client]
            if not self._with[before]:
                del self._with[before]
        if now:
            self._with.setdefault(now, {})[client] = None
        self._most = max(self._most, now)
        if self._most not in self._with:
            self._most = now
