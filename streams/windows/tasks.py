"""Runs work that takes seconds outside the driver's loop."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable

Task = Callable[[], object]


class Tasks:
    """Runs tasks one after the other, in a thread that starts with the first one."""

    def __init__(self, name: str, failed: Callable[[Exception], None]) -> None:
        """`failed` is called in the thread with the error of a task; then the next task follows."""
        self._name, self._failed = name, failed
        self._waiting: queue.SimpleQueue[Task] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def put(self, task: Task) -> None:
        """Add a task after all waiting ones."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()
        self._waiting.put(task)

    def _run(self) -> None:
        while True:
            task = self._waiting.get()
            try:
                task()
            except Exception as error:
                self._failed(error)
