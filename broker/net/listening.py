"""The sockets on which a broker listens, bound before anything on disk is touched.

A loopback listener is bound on both families, as `localhost` means ::1 first on some machines.
"""

from __future__ import annotations

import errno
import socket
from dataclasses import replace
from typing import Any, NamedTuple

from barnabas.broker.settings.config import BrokerConfig
from barnabas.broker.settings.keys import ConfigError
from barnabas.broker.settings.listeners import Listener

FREE_PORT_TRIES = 20
LOOPBACK = ("127.0.0.1", "::1")


class Bound(NamedTuple):
    """A listener with its actual port and its sockets."""

    listener: Listener
    sockets: list[socket.socket]


def bind(config: BrokerConfig) -> list[Bound]:
    """Bind every listener. Raises ConfigError for a port in use or an address that this machine does not have."""
    found: list[Bound] = []
    try:
        for listener in config.listeners:
            sockets = bind_one(listener, config)
            found.append(Bound(replace(listener, port=sockets[0].getsockname()[1]), sockets))
    except ConfigError:
        close(found)
        raise
    return found


def listen(bound: list[Bound], config: BrokerConfig) -> None:
    """Start listening: from now on the kernel accepts connections. Raises ConfigError."""
    for listener, sockets in bound:
        for sock in sockets:
            try:
                sock.listen(config["socket.listen.backlog.size"])
            except OSError as error:  # another process bound it at the same time and listened first
                port = sock.getsockname()[1]
                raise ConfigError(f"Listener {listener.name}: cannot listen on port {port}: {error.strerror}") from None


def close(bound: list[Bound]) -> None:
    """Release the ports."""
    for _, sockets in bound:
        for sock in sockets:
            sock.close()


def bind_one(listener: Listener, config: BrokerConfig) -> list[socket.socket]:
    """Bind all addresses of a listener to one port. If a free port is taken in the other family, try another one."""
    tries = 1 if listener.port else FREE_PORT_TRIES
    while True:
        tries -= 1
        sockets: list[socket.socket] = []
        port = listener.port
        try:
            for family, host in _addresses(listener):
                sock = _bind_one(listener, family, host, port, optional=bool(sockets))
                if sock is not None:
                    _tune(sock, config)
                    port = sock.getsockname()[1]
                    sockets.append(sock)
        except ConfigError:
            for sock in sockets:
                sock.close()
            if not tries:
                raise
        else:
            return sockets


def _tune(sock: socket.socket, config: BrokerConfig) -> None:
    """Set the buffer sizes, which accepted sockets inherit."""
    options = {"socket.send.buffer.bytes": socket.SO_SNDBUF, "socket.receive.buffer.bytes": socket.SO_RCVBUF}
    for key, option in options.items():
        if key in config.static and config[key] > 0:
            sock.setsockopt(socket.SOL_SOCKET, option, config[key])


def _addresses(listener: Listener) -> list[tuple[socket.AddressFamily, str]]:
    """The (family, host) pairs to bind. Raises ConfigError for an unknown host."""
    if listener.host in ("", "::"):
        return [(socket.AF_INET6, "::"), (socket.AF_INET, "0.0.0.0")]
    if listener.host in (*LOOPBACK, "localhost"):
        return [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")]
    try:
        found = socket.getaddrinfo(listener.host, listener.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        raise ConfigError(f"Listener {listener}: host {listener.host} is not known ({error})") from None
    return list(dict.fromkeys((family, str(address[0])) for family, _, _, _, address in found))


def _bind_one(
    listener: Listener, family: socket.AddressFamily, host: str, port: int, *, optional: bool
) -> socket.socket | None:
    """A bound socket; None if the address family is missing and another address of the listener is enough.

    Raises ConfigError if the port is in use or this machine does not have the address.
    """
    sock: Any = None
    try:
        sock = socket.socket(family, socket.SOCK_STREAM)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.setblocking(False)
        sock.bind((host, port))
    except OSError as error:
        if sock is not None:
            sock.close()
        missing = error.errno in (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL)
        if missing and (optional or family == socket.AF_INET6):
            return None
        if error.errno == errno.EADDRINUSE:
            raise ConfigError(
                f"Port {port} on {host} is in use: stop the process that holds it, or choose another with --listen"
            ) from None
        raise ConfigError(f"Cannot listen on {listener}: {error.strerror}") from None
    return sock  # type: ignore[no-any-return]
