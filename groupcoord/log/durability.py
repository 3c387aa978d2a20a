"""Finds out when data appended to a vnode is durable, and calls back those that wait, in the order of the appends.

Data is durable when the vnode's high watermark has passed it; under the fsync policy it is then on disk. A failed vnode
calls back, too: only reading the log again shows whether the bytes are in it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from barnabas.storage.vnode import Vnode
from barnabas.wire.errors import ErrorCode


class Durability:
    """All waiting calls, for any number of vnodes. `request_flush` is called for each append not yet durable."""

    def __init__(self, request_flush: Callable[[Vnode], None]) -> None:
        self._request_flush = request_flush
        self._waiting: dict[Vnode, deque[tuple[int, Callable[[ErrorCode], None]]]] = {}

    def after(self, vnode: Vnode, last: int, done: Callable[[ErrorCode], None]) -> None:
        """Call back once when the offset is durable or has failed, perhaps before this returns. Raises KafkaError."""
        durable = vnode.high_watermark
        waiting = self._waiting.get(vnode)
        if durable > last and not waiting:
            done(ErrorCode.NONE)
            return
        if waiting is None:
            waiting = self._waiting[vnode] = deque()
            vnode.on_high_watermark.subscribe(self._on_high_watermark)
        waiting.append((last, done))
        self._request_flush(vnode)

    def _on_high_watermark(self, vnode: Vnode) -> None:
        waiting = self._waiting.get(vnode)
        if waiting is None:
            return
        failed = vnode.error is not None
        durable = 0 if failed else vnode.high_watermark
        while waiting and (failed or waiting[0][0] < durable):
            waiting.popleft()[1](ErrorCode.KAFKA_STORAGE_ERROR if failed else ErrorCode.NONE)
        if not waiting and self._waiting.get(vnode) is waiting:  # a callback may already have removed the queue
            vnode.on_high_watermark.unsubscribe(self._on_high_watermark)
            del self._waiting[vnode]
