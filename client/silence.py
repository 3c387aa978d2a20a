"""A message for the user if a broker takes long to answer for the first time.

A port may accept connections and never answer: it may belong to another program, a dead tunnel, or a frozen broker. A
broker may also be busy, so nothing is given up early. Instead, after `SECONDS` one message per address goes to the
function that was registered with `tell_with`. A program that uses this as a library registers none.
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
