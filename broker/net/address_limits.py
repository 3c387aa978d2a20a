"""How many connections one address may have: `max.connections.per.ip`, and for some `max.connections.per.ip.overrides`.

The overrides may name hosts. A thread looks each host up, once for each change of the setting; until then the general
limit applies. If a host is not found, that is logged.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Awaitable, Callable

import trio

from barnabas.broker.log import EventLog
from barnabas.broker.settings.config import BrokerConfig
from barnabas.broker.settings.quota_keys import OVERRIDES, parse_overrides

#: Runs a task that ends with the broker.
Start = Callable[[Callable[[], Awaitable[None]]], None]


class AddressLimits:
    """The limits under the current settings."""

    def __init__(self, config: BrokerConfig, log: EventLog) -> None:
        self._config, self._log = config, log
        self._text = ""
        self._overrides: dict[str, int] = {}

    def of(self, address: str, start: Start) -> int:
        """The most connections of an address; hosts are looked up in a task that `start` runs."""
        if self._config[OVERRIDES] != self._text:
            self.read(start)
        most: int = self._overrides.get(address, self._config["max.connections.per.ip"])
        return most

    def read(self, start: Start) -> None:
        """Take up the setting."""
        text = self._text = self._config[OVERRIDES]
        self._overrides = {}
        hosts: dict[str, int] = {}
        for host, count in parse_overrides(text).items():
            try:
                self._overrides[str(ipaddress.ip_address(host))] = count
            except ValueError:
                hosts[host] = count
        if hosts:

            async def look_up() -> None:
                for host, count in hosts.items():
                    found = await trio.to_thread.run_sync(_addresses, host, abandon_on_cancel=True)
                    if self._text != text:
                        return
                    if not found:
                        self._log.error("connections.override.unknown_host", host=host, remedy=f"correct {OVERRIDES}")
                    self._overrides.update(dict.fromkeys(found, count))

            start(look_up)


def _addresses(host: str) -> list[str]:
    try:
        return [str(each[4][0]) for each in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)]
    except (OSError, UnicodeError):
        return []
