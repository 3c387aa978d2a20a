"""Measures of clients, by name. Their number is bounded, however many names clients make up.

Client ids are free text. So one client (`security.client_of`: a principal, or an address) may introduce at most
`MOST_OF_ONE` names; its further names are measured together. A measure that was idle for long enough is 0, and is
dropped. If there are too many in all, the one that was idle for longest is dropped, and starts again at its next use.
"""

from __future__ import annotations

import hashlib
from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

S = TypeVar("S")

MOST, MOST_OF_ONE = 10_000, 1_000
# Longer names are kept as a digest.
LONGEST_NAME = 128
#: The kind, the user and the client id of a measure; for a client's further names, the kind and the client.
Name = tuple[str, ...]


class _Sensor(Generic[S]):
    __slots__ = ("client", "used", "value")

    def __init__(self, client: str, value: S) -> None:
        self.client, self.value, self.used = client, value, 0.0


class Sensors(Generic[S]):
    """Measures by name. After `rest` seconds without use a measure is dropped."""

    def __init__(self, make: Callable[[], S], rest: float) -> None:
        self._make, self._rest = make, rest
        self._all: OrderedDict[Name, _Sensor[S]] = OrderedDict()  # least recently used first
        self._brought_up: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._all)

    def get(self, client: str, name: Name, now: float) -> S:
        """The measure of this name, for a client that uses it."""
        name = tuple(_short(part) for part in name)
        found = self._all.get(name)
        if found is None:
            self._drop_rested(now)
            if self._brought_up[client] >= MOST_OF_ONE:
                name = (name[0], client)
                found = self._all.get(name)
        if found is None:
            if len(self._all) >= MOST:
                self._forget(next(iter(self._all)))
            found = self._all[name] = _Sensor(client, self._make())
            self._brought_up[client] += 1
        found.used = now
        self._all.move_to_end(name)
        return found.value

    def _drop_rested(self, now: float) -> None:
        while self._all:
            name, oldest = next(iter(self._all.items()))
            if now - oldest.used < self._rest:
                return
            self._forget(name)

    def _forget(self, name: Name) -> None:
        client = self._all.pop(name).client
        self._brought_up[client] -= 1
        if not self._brought_up[client]:
            del self._brought_up[client]


def _short(name: str) -> str:
    if len(name) <= LONGEST_NAME:
        return name
    return "#" + hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
