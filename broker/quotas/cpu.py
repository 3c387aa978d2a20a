"""The CPU of a request, on the event loop and in threads: the CPU time of the thread while it runs the request."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from time import thread_time
from typing import Any, Generic, TypeVar

R = TypeVar("R")
#: Called with the seconds of CPU that were used.
Pay = Callable[[float], None]


def paid(call: Callable[[], R], pay: Pay) -> Callable[[], R]:
    """Wrap a call so that its CPU is passed to `pay`, in whichever thread it runs."""

    def run() -> R:
        began = thread_time()
        try:
            return call()
        finally:
            pay(thread_time() - began)

    return run


class Paid(Generic[R]):
    """An awaitable whose steps are paid for; waiting costs nothing."""

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
            except BaseException as error:  # also when the task is cancelled
                send, value = steps.throw, error

    def close(self) -> None:
        """Close an awaitable that will not be awaited."""
        if hasattr(self._work, "close"):
            self._work.close()
