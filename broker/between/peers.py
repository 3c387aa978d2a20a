"""What a node asks of another one, whatever connects them."""

from __future__ import annotations

from typing import Any, Protocol

from barnabas.wire.types import Message


class Unreachable(Exception):
    """A node did not answer: it is down, it ended the connection, or is not known."""


class Peers(Protocol):
    """The other nodes."""

    async def ask(self, node: int, request: Message, version: int | None = None) -> Any:
        """The answer of another node. Requests to one node are answered in any order. Raises Unreachable."""
