"""The cost of one connection's requests, while its client has quotas.

Each request has a bill. Other work of the connection (receiving, sending) is recorded, too, and affects the throttle
times of later requests.
"""

from __future__ import annotations

from collections.abc import Callable
from time import thread_time
from typing import TYPE_CHECKING, TypeVar

from barnabas.broker.quotas.bill import Bill
from barnabas.broker.quotas.manager import ClientQuota, QuotaManager
from barnabas.broker.security.principals import ANONYMOUS, NODE, Principal

if TYPE_CHECKING:
    from barnabas.broker.registry import Context

R = TypeVar("R")
PRODUCE, WRITE_TXN_MARKERS = 0, 27
# The API keys of a login.
LOGIN = frozenset((17, 36))


class Meter:
    """The costs of one connection."""

    __slots__ = ("_looked_up", "_paid", "_quotas", "quota")

    def __init__(self, quotas: QuotaManager) -> None:
        self._quotas = quotas
        #: The quotas of the client, as of its last request; None if it has none.
        self.quota: ClientQuota | None = None
        self._looked_up: tuple[int, str | None, Principal] = (-1, None, ANONYMOUS)  # the key of that look-up
        self._paid = 0.0  # seconds of CPU that were recorded or are on a bill

    def bill(self, context: Context) -> Bill | None:
        """The bill for a request if its client is known and has quotas now. Nodes have none."""
        if context.api.key in LOGIN or context.principal is NODE:
            return None
        known = self._quotas.version, context.client_id, context.principal
        if known != self._looked_up:
            self._looked_up = known
            self.quota = self._quotas.of(context.principal, context.connection.host, context.client_id)
        context.bill = None if self.quota is None else Bill(self.quota)
        return context.bill

    def handled(self, bill: Bill, context: Context, size: int, cpu: float, *, has_answer: bool) -> None:
        """Record a request of `size` bytes, as far as it was handled at once.

        As in Kafka, a quota of CPU does not limit requests without an answer, nor requests between brokers.
        """
        bill.pay(cpu)
        self._paid += cpu
        if context.api.key == PRODUCE:
            context.throttle(bill.quota.produced(size))
        if not has_answer or context.api.key == WRITE_TXN_MARKERS:
            bill.exempt()

    def run(self, work: Callable[[], R]) -> R:
        """Run work of the connection, and record the CPU that was not recorded within it."""
        if self.quota is None or not self.quota.counts_cpu:
            return work()
        began, before = thread_time(), self._paid
        try:
            return work()
        finally:
            inside = self._paid - before
            cpu = thread_time() - began
            self._paid = before + cpu
            if self.quota is not None:
                self.quota.used_cpu(cpu - inside)
