"""The cost so far of one request of a client with quotas."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from barnabas.broker.quotas.cpu import Paid, paid
from barnabas.broker.quotas.manager import ClientQuota

R = TypeVar("R")


class Bill:
    """CPU is added up until the answer is made, and then recorded: `spend` gives the time that the client waits."""

    __slots__ = ("_cpu", "_is_exempt", "is_settled", "quota")

    def __init__(self, quota: ClientQuota) -> None:
        self.quota = quota
        #: Whether the answer already has its throttle time.
        self.is_settled = False
        self._is_exempt = not quota.counts_cpu
        self._cpu = 0.0

    def exempt(self) -> None:
        """Exempt this request from the quota of CPU."""
        self._is_exempt = True

    def pay(self, cpu: float) -> None:
        """Add seconds of CPU that the request has used. May be called in a thread for which the request waits."""
        self._cpu += cpu

    def spend(self) -> float:
        """Record the sum; gives the seconds that the client should wait."""
        if self._is_exempt:
            return 0.0
        cpu, self._cpu = self._cpu, 0.0
        return self.quota.used_cpu(cpu)

    def paid(self, call: Callable[[], R]) -> Callable[[], R]:
        """Wrap a call so that its CPU is added."""
        return call if self._is_exempt else paid(call, self.pay)

    def paid_steps(self, work: Awaitable[R]) -> Awaitable[R]:
        """Wrap an awaitable so that its CPU is added."""
        return work if self._is_exempt else Paid(work, self.pay)
