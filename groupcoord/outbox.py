"""Replies are sent when a step of the state machine is complete, never in the middle of it.

A reply is the caller's function. If it were called in the middle of a transition and sent the next request at once,
that would meet a half-changed group. So a step collects its replies, and the outermost turn sends them.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Any, TypeVar

log = logging.getLogger(__name__)
R = TypeVar("R")


class Outbox:
    """`with outbox:` is a turn. Replies put inside it are delivered in order when the outermost turn ends."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[Callable[[Any], None], Any]] = deque()
        self._depth = 0

    def put(self, reply: Callable[[R], None], response: R) -> None:
        self._waiting.append((reply, response))

    def __enter__(self) -> None:
        self._depth += 1

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._depth -= 1
        while self._depth == 0 and self._waiting:
            reply, response = self._waiting.popleft()
            try:
                reply(response)
            except Exception:  # one client's error must not cost another its answer
                log.exception("a reply failed")
