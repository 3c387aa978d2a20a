"""Shares of a resource among many clients: none may take more than it leaves free for the others.

So the first client may have half, the second half of the rest, and there is always something for a newcomer. Nothing is
reserved for absent clients, and nobody needs to configure their number.

Source: dynamic thresholds, which switches use for buffers shared by their ports (Choudhury and Hahne, 1998).
"""

from __future__ import annotations

import ipaddress
from collections import Counter


def client_at(host: str) -> str:
    """The client at an address: the address, or an IPv6 address's network; with a leading slash, as in groups' hosts.
    Whoever has an IPv6 address has all that begin with the same 64 bits. Any other text is a client of its own.
    """
    host = host.removeprefix("/")
    if ":" not in host:
        return host
    try:
        address = ipaddress.IPv6Address(host.partition("%")[0])
    except ValueError:
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.IPv6Network((address, 64), strict=False))


class Shares:
    """A total of bytes or places, how much is used, and each client's part. Clients are arbitrary names."""

    __slots__ = ("_of", "total", "used")

    def __init__(self, total: int) -> None:
        self.total = total
        self.used = 0
        self._of: Counter[str] = Counter()

    @property
    def free(self) -> int:
        """The unused part; negative if more was taken than exists."""
        return self.total - self.used

    def of(self, client: str) -> int:
        """A client's part."""
        return self._of[client]

    def spare(self, client: str) -> int:
        """How much more a client may take."""
        return max(0, (self.free - self._of[client]) // 2)

    def take(self, client: str, size: int) -> None:
        """Count what a client takes, without a check; a negative number returns it."""
        self.used += size
        self._of[client] += size
        if not self._of[client]:
            del self._of[client]
