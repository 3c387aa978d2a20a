"""How long a frame may take to come in: a client that sends slowly must not keep others from memory.

A frame may take a number of seconds, and more as its bytes come in. It may take less while other connections wait for
the memory that it has. Time in which the broker reads nothing from the connection does not count.
"""

from __future__ import annotations

from typing import NamedTuple


class Allowance(NamedTuple):
    """What a frame may take: `seconds`, and one more for every `rate` bytes that have come."""

    seconds: float
    rate: int


USUAL = Allowance(30.0, 32 << 10)
WAITED_FOR = Allowance(5.0, 1 << 20)
SMALL_WAITED_FOR = Allowance(0.5, 1 << 20)  # of a frame that others like it wait for
# How many seconds a connection may do nothing while others wait for the memory of its frame; and where the broker keeps
# the frame waiting for the answer to an earlier one.
PATIENCE, PATIENCE_HELD = 0.5, 10.0


class FrameTimer:
    """The clock of one connection's frame; times are seconds of any clock that goes forward."""

    __slots__ = ("_is_stopped", "_since")

    def __init__(self) -> None:
        self._since: float | None = None  # when the unfinished frame began
        self._is_stopped = False  # it has begun, but the broker keeps it from coming in

    @property
    def is_running(self) -> bool:
        return self._since is not None

    def begin(self, now: float) -> None:
        """A frame has begun."""
        self._since = now

    def end(self) -> None:
        """No frame is under way."""
        self._since = None

    def stop(self) -> None:
        """The broker reads no more for now."""
        self._is_stopped, self._since = self._since is not None, None

    def go_on(self, now: float) -> None:
        """The broker reads again: the frame has all its time anew."""
        if self._is_stopped:
            self._is_stopped, self._since = False, now

    def is_too_slow(self, now: float, received: int, allowance: Allowance) -> bool:
        """Whether the frame, of which `received` bytes have come, takes longer than it may."""
        if self._since is None:
            return False
        return now - self._since > allowance.seconds + received / allowance.rate
