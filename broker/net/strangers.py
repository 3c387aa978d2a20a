"""Connections whose clients have not proved who they are yet, or not ended their TLS handshake. Anybody can open them.

Together they may be only a part of all connections, so that known clients keep the rest. At the limit, a further one
replaces another: the oldest of the client with the most (an address, `security.client_of`). So somebody who opens
thousands of connections displaces its own, and a newcomer from elsewhere has enough time for a login.
"""

from __future__ import annotations

from typing import Protocol

# One connection in PART may be a stranger's, at most MOST in all: each may hold some 32 KiB (docs/limits.md).
PART = 4
LEAST, MOST = 4, 4096


class Stranger(Protocol):
    """A connection; `origin` is the client from which it came."""

    origin: str

    def close(self, reason: str | None = None) -> None:
        """End it; `reason` is for the log."""


class Strangers:
    """All strangers' connections of one broker."""

    def __init__(self) -> None:
        self._of: dict[str, dict[Stranger, None]] = {}  # by client, the oldest first
        # Clients by their number of connections; among equals, the one that reached the number first comes first.
        self._with: dict[int, dict[str, None]] = {}
        self._most = 0
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, stranger: Stranger, connections: int) -> None:
        """Add one; if there are then too many for this number of `connections`, another one is closed."""
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
        """Remove one: its client is known now, or gone."""
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
