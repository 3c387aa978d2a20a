"""The state of each query: what SHOW QUERIES shows, and when a failed query is tried again."""

from __future__ import annotations

import time

from barnabas.wire.queries.messages import QueryStatus

_FIRST_BACKOFF_SECONDS, _MAX_BACKOFF_SECONDS = 1.0, 60.0
_RATE_SECONDS = 10.0
#: The most ticks in _SLOW_SECONDS that may work for too long; after that, the query may hold up no others.
_MOST_SLOW, _SLOW_SECONDS = 3, 3600.0
_MOST_DISTURBED = 32
RUNNING, SLOW, RETRYING, FAILED, DENIED = "RUNNING", "SLOW", "RETRYING", "FAILED", "DENIED"


class Health:
    """One query's state. Times are those of `time.monotonic`."""

    def __init__(self) -> None:
        self.state = RUNNING
        self.error: str | None = None
        self.rows = self.dead = 0
        self.lag: int | None = None  # not known yet
        self.batch_ms = 0.0
        self._failures = self._disturbed = 0
        self._next_try = 0.0
        self._recent: list[tuple[float, int]] = []
        self._slow: list[float] = []

    @property
    def failures(self) -> int:
        """The number of consecutive failed ticks."""
        return self._failures

    def may_run(self, now: float) -> bool:
        """Whether to run it in this tick."""
        return self.state not in (FAILED, DENIED) and now >= self._next_try

    def ran(self, now: float, rows: int, dead: int, seconds: float) -> None:
        """A tick succeeded."""
        self.state, self.error, self._failures, self._next_try = RUNNING, None, 0, 0.0
        self._disturbed = 0
        self.rows += rows
        self.dead += dead
        if seconds:
            self.batch_ms = seconds * 1000
        self._recent.append((now, rows))

    def held_up(self, why: str) -> None:
        """The successful tick took long, but others caused that."""
        self.state, self.error = SLOW, why

    def failed(self, now: float, error: str) -> None:
        """A tick failed. It is retried after increasing pauses."""
        wait = min(_FIRST_BACKOFF_SECONDS * 2**self._failures, _MAX_BACKOFF_SECONDS)
        self.state, self.error = RETRYING, error
        self._failures += 1
        self._next_try = now + wait

    def disturbed(self, now: float, error: str) -> bool:
        """A tick failed, but not because of the query. It is retried soon. False if that has happened too often."""
        self._disturbed += 1
        if self._disturbed > _MOST_DISTURBED:
            return False
        self.state, self.error, self._next_try = RETRYING, error, now + _FIRST_BACKOFF_SECONDS
        return True

    def slow(self, now: float) -> bool:
        """A tick worked for too long. Returns whether there were too many of these."""
        self._slow = [*(at for at in self._slow if at > now - _SLOW_SECONDS), now]
        return len(self._slow) >= _MOST_SLOW

    def stopped(self, error: str, state: str = FAILED) -> None:
        """It cannot continue until a user changes something."""
        self.state, self.error = state, error

    def changed(self) -> None:
        """A user has changed something: it may continue."""
        self.state, self.error, self._failures, self._next_try = RUNNING, None, 0, 0.0

    def told(self, now: float, topic: str, source: str) -> QueryStatus:
        """The figures of the query of `topic`; rows/s over the last ten seconds."""
        self._recent = [(at, rows) for at, rows in self._recent if at > now - _RATE_SECONDS]
        return QueryStatus(
            topic=topic,
            source=source,
            state=self.state,
            lag=self.lag,
            rows=self.rows,
            rows_per_second=round(sum(rows for _, rows in self._recent) / _RATE_SECONDS, 1),
            batch_ms=round(self.batch_ms, 1),
            dead_letters=self.dead,
            last_error=self.error,
        )


def now() -> float:
    """The clock of this module."""
    return time.monotonic()
