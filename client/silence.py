"""What the user is told when a broker takes long to answer for the first time: they wait for it, and should know.

A port may accept connections and never answer: another program's, one behind a dead tunnel, that of a frozen broker. A
broker may also be busy, so nothing is given up early. Instead, after `SECONDS` one message per address goes to whoever
registered with `tell_with`. In a library, nobody has.
"""

from __future__ import annotations

from collections.abc import Callable

SECONDS = 5.0

_tell: Callable[[str], None] | None = None
_told: set[str] = set()


def tell_with(tell: Callable[[str], None]) -> None:
    """From now on, call this with a line for the user."""
    global _tell
    _tell = tell
    _told.clear()


def tell(address: object, what: str) -> None:
    """Report that a broker has not done this yet: `answered`, `taken the connection`."""
    if _tell is not None and str(address) not in _told:
        _told.add(str(address))
        _tell(f"{address} has not {what} for {SECONDS:g} s: is it a broker's port? Still waiting; Ctrl-C ends it.")
