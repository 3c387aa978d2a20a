"""The Spark session of a driver that may never need one: it starts in its own thread when first asked for.

Invariant: there is at most one session, and one start at a time. A failed start is tried again only after a while; a
caller that asks in the meantime gets the reason at once.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from barnabas.streams.query.errors import FatalError, reason_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: An operator who has installed Java need not restart the driver.
AGAIN_SECONDS = 60.0


class LazySpark:
    """A session made by `start`, which raises FatalError if it cannot. Any thread may ask."""

    def __init__(self, start: Callable[[], SparkSession]) -> None:
        self._start = start
        self._lock = threading.Lock()
        self._done = threading.Event()  # of the current or last start
        self._done.set()
        self._session: SparkSession | None = None
        self._failed_at = 0.0
        #: Why there is no session, if the last start has failed.
        self.why: str | None = None

    @property
    def is_up(self) -> bool:
        """Whether `get` returns a session without waiting."""
        return self._session is not None

    @property
    def is_starting(self) -> bool:
        """Whether a start is in progress."""
        return not self._done.is_set()

    def want(self) -> None:
        """Start it if needed, without waiting."""
        with self._lock:
            if self.is_up or not self._done.is_set():
                return
            if self.why is not None and time.monotonic() - self._failed_at < AGAIN_SECONDS:
                return
            self.why = None
            self._done.clear()
        threading.Thread(target=self._run, name="spark-start", daemon=True).start()

    def get(self) -> SparkSession:
        """The session. Waits until it is there. Raises FatalError if Spark does not start."""
        self.want()
        self._done.wait()
        if self._session is None:
            raise FatalError(self.why or "Spark does not start")
        return self._session

    def _run(self) -> None:
        try:
            self._session = self._start()
        except Exception as error:
            self.why, self._failed_at = reason_of(error), time.monotonic()
        finally:
            self._done.set()
