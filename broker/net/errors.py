"""The exception that ends a connection."""

from __future__ import annotations


class Disconnected(Exception):
    """The client is gone, broke the protocol, or must get an error that no answer can carry.

    `reason` is for the log, None if the client just closed.
    """

    def __init__(self, reason: str | None = None) -> None:
        super().__init__(reason or "closed by the client")
        self.reason = reason
