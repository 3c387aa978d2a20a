"""Who a client has proved to be.

Source: KIP-11 (principals), KIP-368 (a connection may prove it again).
"""

from __future__ import annotations

from typing import NamedTuple

from barnabas.groupcoord.shares import client_at


class Principal(NamedTuple):
    """Who a client has proved to be."""

    type: str
    name: str

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"


ANONYMOUS = Principal("User", "ANONYMOUS")
#: The streams driver. No client can have its type: those that log in are of type User.
DRIVER = Principal("Driver", "streams")
#: Another node of this broker.
NODE = Principal("Node", "barnabas")
#: Means every client in ACLs, also one whose principal has another type, as in Kafka.
EVERYBODY = Principal("User", "*")


def parse_principal(text: str) -> Principal:
    """Parse TYPE:NAME; the name may contain colons. Raises ValueError for a text without a colon."""
    kind, colon, name = text.partition(":")
    if not colon:
        raise ValueError(f"expected a principal as TYPE:NAME, got {text[:300]!r}")
    return Principal(kind, name)


def client_of(principal: Principal, host: str) -> str:
    """The key that counts as one client for shared limits: the principal, or without one the address."""
    return client_at(host) if principal == ANONYMOUS else str(principal)
