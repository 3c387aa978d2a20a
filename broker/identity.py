"""The identity of this broker: cluster and node id, and the addresses announced to clients."""

from __future__ import annotations

from barnabas.broker.settings.config import BrokerConfig
from barnabas.broker.settings.listeners import Listener, Protocol

_EASIEST = (Protocol.PLAINTEXT, Protocol.SASL_PLAINTEXT, Protocol.SASL_SSL, Protocol.SSL)


class Identity:
    """Ids and addresses. The cluster id and the ports are known once the broker has started."""

    def __init__(self, config: BrokerConfig) -> None:
        self._config = config
        self.node_id = config.node_id
        self.rack: str | None = config["broker.rack"]
        self.cluster_id = ""
        #: Whether this is one of several nodes, which a supervisor has started.
        self.is_supervised = False
        #: The listeners, with the ports that they are bound to.
        self.bound: list[Listener] = []

    def advertised(self, listener: str) -> tuple[str, int]:
        """(host, port) as announced to the clients of a listener."""
        bound = next(each for each in self.bound if each.name == listener)
        told = self._config.advertised_for(listener, bound)
        return told.host, told.port

    @property
    def local_listener(self) -> Listener:
        """The listener that is easiest to connect to, for processes on this machine."""
        return min(self.bound, key=lambda each: _EASIEST.index(each.protocol))

    @property
    def local_address(self) -> str:
        """HOST:PORT of that listener."""
        first = self.local_listener
        host = "127.0.0.1" if first.host in ("", "::", "0.0.0.0") else first.host
        return f"[{host}]:{first.port}" if ":" in host else f"{host}:{first.port}"
