"""Client quotas in force: the cost of a client's requests, and the time that the client has to wait.

    request -> `of` its client: which quotas apply -> its bytes, CPU or changes are recorded -> a throttle time

Quotas are looked up in the current metadata, so a change holds for the next request of every connection. The streams
driver has none, nor have clients that have not logged in: strangers have other limits (`broker.net.connections`).

Source: KIP-13 (bytes), KIP-124 (CPU), KIP-219 (throttle times), KIP-599 (changes of topics), KIP-55 (users).
"""

from __future__ import annotations

import trio

from barnabas.broker.metadata.image import MetadataImage
from barnabas.broker.quotas.precedence import Limit, find_limit
from barnabas.broker.quotas.rates import Rate, TokenBucket, Windows
from barnabas.broker.quotas.sensors import Sensors
from barnabas.broker.security.principals import DRIVER, Principal, client_of
from barnabas.broker.settings.config import BrokerConfig
from barnabas.broker.settings.quotas import CONSUMER, MUTATIONS, OF_CLIENTS, PRODUCER, REQUESTS, ClientQuotas
from barnabas.wire.errors import ErrorCode, KafkaError


class QuotaManager:
    """The measures of all clients of one broker."""

    def __init__(self, config: BrokerConfig, metadata: MetadataImage) -> None:
        self._metadata = metadata
        self.windows = Windows(config["quota.window.num"], config["quota.window.size.seconds"])
        self.change_windows = Windows(
            config["controller.quota.window.num"], config["controller.quota.window.size.seconds"]
        )
        # A bucket, too, is full again after its windows.
        self.rates: Sensors[Rate] = Sensors(Rate, self.windows.span)
        self.buckets: Sensors[TokenBucket] = Sensors(TokenBucket, 2 * self.change_windows.span)

    @property
    def known(self) -> ClientQuotas:
        """All quotas. Whether any limits clients is asked for each request, so they have an attribute for it."""
        return self._metadata.quotas

    @property
    def version(self) -> int:
        """A number that changes when quotas may change."""
        return self._metadata.quotas.version

    def of(self, principal: Principal, host: str, client_id: str | None) -> ClientQuota | None:
        """The quotas of a client; None if it has none."""
        if principal == DRIVER:
            return None
        name, quotas = client_id or "", self._metadata.quotas.of
        limits = {key: find_limit(quotas, key, principal.name, name) for key in OF_CLIENTS}
        if not any(limits.values()):
            return None
        return ClientQuota(self, client_of(principal, host), {key: each for key, each in limits.items() if each})


class ClientQuota:
    """The quotas of one client, in one version. Throttle times are in seconds; 0: the client need not wait."""

    __slots__ = ("_client", "_limits", "_manager", "counts_cpu", "version")

    def __init__(self, manager: QuotaManager, client: str, limits: dict[str, Limit]) -> None:
        """`client` is the owner of the names (`Sensors`)."""
        self._manager, self._client, self._limits = manager, client, limits
        self.version = manager.version
        #: Whether the CPU of its requests is limited.
        self.counts_cpu = REQUESTS in limits

    def produced(self, size: int) -> float:
        """Record a produce request; gives the throttle time."""
        return self._recorded(PRODUCER, size)

    def fetched(self, size: int) -> float:
        """Record bytes about to be sent; gives the throttle time. If the client has to wait, call `not_sent`."""
        return self._recorded(CONSUMER, size)

    def not_sent(self, size: int) -> None:
        """Take bytes back that are not sent after all."""
        self._recorded(CONSUMER, -size)

    @property
    def most_fetched(self) -> float:
        """The most bytes of one answer: a larger one could never be sent."""
        limit, windows = self._limits.get(CONSUMER), self._manager.windows
        return float("inf") if limit is None else limit.value * max(1, windows.number - 1) * windows.seconds

    @property
    def has_fetched_nothing(self) -> bool:
        """Whether nothing was sent in all windows."""
        rate, _ = self._rate(CONSUMER)
        return rate is None or rate.total(trio.current_time(), self._manager.windows) <= 0

    def used_cpu(self, seconds: float) -> float:
        """Record CPU of requests; gives the throttle time, at most one window."""
        return min(self._recorded(REQUESTS, 100 * seconds), self._manager.windows.seconds)

    def _rate(self, key: str) -> tuple[Rate | None, float]:
        """The measured rate for a quota, and its limit."""
        limit = self._limits.get(key)
        if limit is None:
            return None, 0.0
        name = key, limit.user, limit.client_id
        return self._manager.rates.get(self._client, name, trio.current_time()), limit.value

    def _recorded(self, key: str, amount: float) -> float:
        rate, limit = self._rate(key)
        if rate is None:
            return 0.0
        now, windows = trio.current_time(), self._manager.windows
        rate.record(amount, now, windows)
        return rate.throttle(limit, now, windows)

    def change(self, partitions: int, *, strict: bool) -> float:
        """Record the creation, deletion or growth of a topic by this number of partitions; gives the throttle time.

        If it is `strict`, raises KafkaError THROTTLING_QUOTA_EXCEEDED if the quota does not allow it.
        """
        limit, windows = self._limits.get(MUTATIONS), self._manager.change_windows
        if limit is None:
            return 0.0
        now = trio.current_time()
        bucket = self._manager.buckets.get(self._client, (MUTATIONS, limit.user, limit.client_id), now)
        wait = bucket.throttle(limit.value, now, windows)
        if strict and wait > 0:
            raise QuotaExceeded(wait)
        bucket.record(partitions, limit.value, now, windows)
        return 0.0 if strict else bucket.throttle(limit.value, now, windows)


class QuotaExceeded(KafkaError):
    """There are too many changes; the client should make none for `wait` seconds."""

    def __init__(self, wait: float) -> None:
        super().__init__(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "The throttling quota has been exceeded.")
        self.wait = wait
