"""How fast connections may be made: on all listeners together, on each, and from each address.

A connection that comes too fast for the broker or its listener is accepted later; later ones wait in the system's
queue. A connection that comes too fast from its address is refused, and does not count.

Source: KIP-612. All IPv6 addresses of a 64-bit network share one quota, because whoever has one of these addresses has
all of them. An address with a quota of its own does not share it.
"""

from __future__ import annotations

import ipaddress

from barnabas.broker.metadata.image import MetadataImage
from barnabas.broker.quotas.rates import Rate, Windows
from barnabas.broker.quotas.sensors import Sensors
from barnabas.broker.security.principals import ANONYMOUS, client_of
from barnabas.broker.settings.config import BrokerConfig
from barnabas.broker.settings.keys import INT_MAX
from barnabas.broker.settings.quotas import CONNECTIONS, IP

KEY = "max.connection.creation.rate"


class ConnectionRates:
    """The measured rates of new connections of one broker."""

    def __init__(self, config: BrokerConfig, metadata: MetadataImage) -> None:
        self._config, self._metadata = config, metadata
        self._windows = Windows(config["quota.window.num"], config["quota.window.size.seconds"])
        self._of_broker = Rate()
        self._of_listener: dict[str, Rate] = {}
        self._of_address: Sensors[Rate] = Sensors(Rate, self._windows.span)
        self._quotas: dict[str, float] = {}
        self._default: float | None = None
        self._version = -1

    def delay(self, listener: str, now: float) -> float:
        """Record a new connection; gives the seconds after which it may be accepted."""
        of_listener = self._of_listener.setdefault(listener, Rate())
        return max(
            self._recorded(self._of_broker, self._config[KEY], now),
            self._recorded(of_listener, self._config.of(listener, KEY), now),
        )

    def _recorded(self, rate: Rate, limit: float, now: float) -> float:
        """Record one event; gives the time to wait, at most one window."""
        if limit == INT_MAX:
            return 0.0
        rate.record(1, now, self._windows)
        return (
            self._windows.seconds if not limit else min(rate.throttle(limit, now, self._windows), self._windows.seconds)
        )

    def refusal(self, host: str, now: float) -> float:
        """The seconds after which to close a new connection of an address; 0 if it may stay."""
        if not self._metadata.quotas.limits_addresses:
            return 0.0
        self._read()
        limit, name = self._quotas.get(host), host
        if limit is None:
            if self._default is None:
                return 0.0
            limit, name = self._default, client_of(ANONYMOUS, host)
        rate = self._of_address.get(name, (CONNECTIONS, name), now)
        wait = self._recorded(rate, limit, now)
        if wait > 0:
            rate.record(-1, now, self._windows)
        return wait

    def _read(self) -> None:
        """Take over the current quotas, with addresses in one form."""
        quotas = self._metadata.quotas
        if self._version == quotas.version:
            return
        self._version, self._default = quotas.version, None
        self._quotas.clear()
        for entity, values in quotas.of.items():
            if entity[0][0] == IP and CONNECTIONS in values:
                address = entity[0][1]
                if address is None:
                    self._default = values[CONNECTIONS]
                else:
                    self._quotas[str(ipaddress.ip_address(address))] = values[CONNECTIONS]
