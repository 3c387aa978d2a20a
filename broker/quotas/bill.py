"""What one request of a client that has quotas has cost so far."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from barnabas.broker.quotas.cpu import Paid, paid
from barnabas.broker.quotas.manager import ClientQuota

R = TypeVar("R")


class Bill:
    """CPU is added up until the answer is made, and recorded then: `spend` says for how long the client waits."""

    __slots__ = ("_cpu", "_is_exempt", "is_settled", "quota")

    def __init__(self, quota: ClientQuota) -> None:
        self.quota = quota
        #: Whether the answer has its throttle time.
        self.is_settled = False
        self._is_exempt = not quota.counts_cpu
        self._cpu = 0.0

    def exempt(self) -> None:
        """The quota of CPU does not limit this request."""
        self._is_exempt = True

    def pay(self, cpu: float) -> None:
        """The request has taken so many seconds of CPU. May be called in a thread that the request waits for."""
        self._cpu += cpu

    def spend(self) -> float:
        """Record what has been added up; for how many seconds the client should wait."""
        if self._is_exempt:
            return 0.0
        cpu, self._cpu = self._cpu, 0.0
        return self.quota.used_cpu(cpu)

    def paid(self, call: Callable[[], R]) -> Callable[[], R]:
        """A call whose CPU is added."""
        return call if self._is_exempt else paid(call, self.pay)

    def paid_steps(self, work: Awaitable[R]) -> Awaitable[R]:
        """An awaitable whose CPU is added."""
        return work if self._is_exempt else Paid(work, self.pay)
