"""How long a frame may take to come in: a client that sends slowly must not keep others from memory.

A frame has a number of seconds, and gets more as its bytes come in. It has less time while other connections wait for
its memory. Time in which the broker does not read from the connection does not count.
"""

from __future__ import annotations

from typing import NamedTuple


class Allowance(NamedTuple):
    """The time for a frame: `seconds`, and one more for every `rate` bytes received."""

    seconds: float
    rate: int


USUAL = Allowance(30.0, 32 << 10)
WAITED_FOR = Allowance(5.0, 1 << 20)
SMALL_WAITED_FOR = Allowance(0.5, 1 << 20)  # if other frames of its size wait
# How many seconds a connection may be idle while others wait for its frame's memory; and the same if the broker itself
# holds the frame back until an earlier request is answered.
PATIENCE, PATIENCE_HELD = 0.5, 10.0


class FrameTimer:
    """The clock of one connection's frame; times are seconds of any clock that goes forward."""

    __slots__ = ("_is_stopped", "_since")

    def __init__(self) -> None:
        self._since: float | None = None  # when the unfinished frame began
        self._is_stopped = False  # the frame has begun, but the broker does not read

    @property
    def is_running(self) -> bool:
        return self._since is not None

    def begin(self, now: float) -> None:
        """A frame has begun."""
        self._since = now

    def end(self) -> None:
        """The frame is complete."""
        self._since = None

    def stop(self) -> None:
        """The broker stops reading for now."""
        self._is_stopped, self._since = self._since is not None, None

    def go_on(self, now: float) -> None:
        """The broker reads again: the frame's time starts again."""
        if self._is_stopped:
            self._is_stopped, self._since = False, now

    def is_too_slow(self, now: float, received: int, allowance: Allowance) -> bool:
        """Whether the frame, with `received` bytes so far, takes longer than it may."""
        if self._since is None:
            return False
        return now - self._since > allowance.seconds + received / allowance.rate
