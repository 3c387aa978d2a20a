"""The CPU that a request takes, on the event loop and in threads: what the thread that runs it has used meanwhile."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from time import thread_time
from typing import Any, Generic, TypeVar

R = TypeVar("R")
#: Hears how many seconds of CPU were used.
Pay = Callable[[float], None]


def paid(call: Callable[[], R], pay: Pay) -> Callable[[], R]:
    """A call whose CPU is paid for, in whichever thread it runs."""

    def run() -> R:
        began = thread_time()
        try:
            return call()
        finally:
            pay(thread_time() - began)

    return run


class Paid(Generic[R]):
    """An awaitable whose steps are paid for; while it waits, it costs nothing."""

    __slots__ = ("_pay", "_work")

    def __init__(self, work: Awaitable[R], pay: Pay) -> None:
        self._work, self._pay = work, pay

    def __await__(self) -> Generator[Any, Any, R]:
        steps: Any = self._work.__await__()
        send, value = steps.send, None
        while True:
            began = thread_time()
            try:
                asked = send(value)
            except StopIteration as end:
                result: R = end.value
                return result
            finally:
                self._pay(thread_time() - began)
            try:
                send, value = steps.send, (yield asked)
            except BaseException as error:  # of a cancelled task, too
                send, value = steps.throw, error

    def close(self) -> None:
        """It is not awaited after all."""
        if hasattr(self._work, "close"):
            self._work.close()
