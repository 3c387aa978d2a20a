"""What ends a connection."""

from __future__ import annotations


class Disconnected(Exception):
    """The client is gone, broke the protocol, or can be told of an error in no other way.

    `reason` is for the log, None where the client just closed.
    """

    def __init__(self, reason: str | None = None) -> None:
        super().__init__(reason or "closed by the client")
        self.reason = reason
