"""What many clients share, and how much of it one of them may take: never more than it leaves free to the others.

So the first client may have a half, a second one half of what is left, and there is always something for a newcomer.
Nothing is kept for clients that are not there, and nobody has to say how many there are.

Source: dynamic thresholds, as switches use them for the buffers that their ports share (Choudhury and Hahne, 1998).
"""

from __future__ import annotations

import ipaddress
from collections import Counter


def client_at(host: str) -> str:
    """Who counts as one client: an address, or the network of an IPv6 one; with a slash before it as in groups' hosts.

    Who has an IPv6 address has all that begin with the same 64 bits. What is no address is a name of its own.
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
    """A total of bytes or places, what is used of it, and what each client has. Clients are any names."""

    __slots__ = ("_of", "total", "used")

    def __init__(self, total: int) -> None:
        self.total = total
        self.used = 0
        self._of: Counter[str] = Counter()

    @property
    def free(self) -> int:
        """What nobody has; negative where more was taken than there is."""
        return self.total - self.used

    def of(self, client: str) -> int:
        """What a client has."""
        return self._of[client]

    def spare(self, client: str) -> int:
        """What a client may still take."""
        return max(0, (self.free - self._of[client]) // 2)

    def take(self, client: str, size: int) -> None:
        """Count what a client takes, whether it may or not; what is negative is given back."""
        self.used += size
        self._of[client] += size
        if not self._of[client]:
            del self._of[client]
