"""Client quotas in force: what the requests of a client cost, and for how long the client has to wait for it.

    request -> `of` its client: which quotas apply -> its bytes, CPU or changes are recorded -> a throttle time

Quotas are looked up as they are in the metadata now, so a change holds for the next request of every connection. The
streams driver has none, nor has who has yet to log in: strangers have bounds of their own (`broker.net.connections`).

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
    """All that is measured of the clients of one broker."""

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
        """The quotas that there are. Whether there is one of clients is asked for each request: it says so itself."""
        return self._metadata.quotas

    @property
    def version(self) -> int:
        """Another number when quotas may be others."""
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
    """The quotas of one client, as of one version of them. Throttle times are seconds; 0: the client need not wait."""

    __slots__ = ("_client", "_limits", "_manager", "counts_cpu", "version")

    def __init__(self, manager: QuotaManager, client: str, limits: dict[str, Limit]) -> None:
        """`client` is whose names they are (`Sensors`)."""
        self._manager, self._client, self._limits = manager, client, limits
        self.version = manager.version
        #: Whether it matters how much CPU its requests take.
        self.counts_cpu = REQUESTS in limits

    def produced(self, size: int) -> float:
        """A produce request has come."""
        return self._recorded(PRODUCER, size)

    def fetched(self, size: int) -> float:
        """So much would be sent. Who has to wait is sent nothing, and it is to be taken back (`not_sent`)."""
        return self._recorded(CONSUMER, size)

    def not_sent(self, size: int) -> None:
        """What was fetched is not sent after all."""
        self._recorded(CONSUMER, -size)

    @property
    def most_fetched(self) -> float:
        """The most that one answer may have: a larger one could never be sent."""
        limit, windows = self._limits.get(CONSUMER), self._manager.windows
        return float("inf") if limit is None else limit.value * max(1, windows.number - 1) * windows.seconds

    @property
    def has_fetched_nothing(self) -> bool:
        """Whether nothing was sent for as long as is looked back."""
        rate, _ = self._rate(CONSUMER)
        return rate is None or rate.total(trio.current_time(), self._manager.windows) <= 0

    def used_cpu(self, seconds: float) -> float:
        """Requests have taken CPU. The time to wait is at most a window."""
        return min(self._recorded(REQUESTS, 100 * seconds), self._manager.windows.seconds)

    def _rate(self, key: str) -> tuple[Rate | None, float]:
        """What is measured for a quota, and its limit."""
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
        """A topic is to be made, or deleted, or to grow by so many partitions.

        Raises KafkaError with THROTTLING_QUOTA_EXCEEDED if it may not, which only a `strict` one is told.
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
    """There are too many changes; `wait` is for how many seconds the client should make none."""

    def __init__(self, wait: float) -> None:
        super().__init__(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "The throttling quota has been exceeded.")
        self.wait = wait
