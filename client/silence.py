"""What is told when a broker takes long to say its first word: the user waits for it, and should know.

A port may take connections and never answer: another program's, one behind a dead tunnel, a broker that is frozen. A
broker may also be busy. So nothing is given up early; after `SECONDS` it is told once for each address, by whoever has
taken it over with `tell_with`. Nobody has in a library.
"""

from __future__ import annotations

from collections.abc import Callable

SECONDS = 5.0

_tell: Callable[[str], None] | None = None
_told: set[str] = set()


def tell_with(tell: Callable[[str], None]) -> None:
    """From now on this is called with a line for the user."""
    global _tell
    _tell = tell
    _told.clear()


def tell(address: object, what: str) -> None:
    """A broker has not done that yet: `answered`, `taken the connection`."""
    if _tell is not None and str(address) not in _told:
        _told.add(str(address))
        _tell(f"{address} has not {what} for {SECONDS:g} s: is it a broker's port? Still waiting; Ctrl-C ends it.")
