"""Copies the checkpoints of streams every few minutes, in its own thread, so that a slow target delays no stream."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING

from barnabas.streams.query.errors import reason_of
from barnabas.streams.windows.copies import Copies
from barnabas.streams.windows.groups import Group
from barnabas.streams.windows.tasks import Tasks

if TYPE_CHECKING:
    from barnabas.streams.windows.runner import Runner

Say = Callable[..., None]


class Copier:
    """Copies the checkpoints of all queries of one driver. Without a target it does nothing."""

    def __init__(self, copies: Copies | None, seconds: float, say: Say) -> None:
        self._copies, self._seconds, self._say = copies, seconds, say
        #: By query: when its checkpoint was last copied (ms since 1970), of which group, and its number of batches.
        self.copied: dict[str, tuple[int, Group, int]] = {}
        self._tried: dict[str, tuple[float, Group]] = {}
        self._busy: set[str] = set()
        self._tasks = Tasks("copies of streams", self._failed)

    def look(self, at: float, runners: Iterable[Runner]) -> None:
        """Make the copies that are due: after the interval, or at once if a query's streams change (`at`: seconds)."""
        if self._copies is None:
            return
        for runner in runners:
            query, group = runner.group.id, runner.group
            tried, was = self._tried.get(query, (-math.inf, None))
            _, copied_group, batches = self.copied.get(query, (0, None, 0))
            if query in self._busy or (group == was and at - tried < self._seconds):
                continue
            done = runner.batches
            if done and (done > batches or group != copied_group):
                self._tried[query] = at, group
                self._busy.add(query)
                self._tasks.put(partial(self._copy, runner, group))

    def forget(self, query: str) -> None:
        """A query is gone: remove its copies."""
        if self._copies is not None:
            self.copied.pop(query, None)
            self._tried.pop(query, None)
            self._tasks.put(partial(self._remove, query))

    def _copy(self, runner: Runner, group: Group) -> None:
        assert self._copies is not None
        query = group.id
        try:
            batch = self._copies.save(group, runner.folder)
            if batch >= 0:
                self.copied[query] = time.time_ns() // 1_000_000, group, batch + 1
                self._say("info", "stream.copied", query=query, batch=batch)
        except Exception as error:  # obstore's errors have no common base class
            self._say("warning", "stream.not_copied", query=query, error=reason_of(error))
        finally:
            self._busy.discard(query)

    def _remove(self, query: str) -> None:
        assert self._copies is not None
        self._copies.remove(query)

    def _failed(self, error: Exception) -> None:
        self._say("warning", "stream.copy_not_removed", error=reason_of(error))
