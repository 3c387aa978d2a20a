"""What a node may ask of another one, independent of the connection."""

from __future__ import annotations

from typing import Any, Protocol

from barnabas.wire.types import Message


class Unreachable(Exception):
    """A node did not answer: it is down, it closed the connection, or it is unknown."""


class Peers(Protocol):
    """The other nodes."""

    async def ask(self, node: int, request: Message, version: int | None = None) -> Any:
        """The answer of another node. The requests to a node may be answered in any order. Raises Unreachable."""
