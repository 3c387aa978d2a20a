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


def client_of(principal: Principal, host: str) -> str:
    """Who counts as one client where a bound is shared: a principal, and all that come from one address without one."""
    return client_at(host) if principal == ANONYMOUS else str(principal)
