"""All connections of a broker: which are accepted, how many, how fast, and which are closed.

Connections are refused beyond `max.connections`, `max.connections.per.ip` and the limit of the process's descriptors,
and if they come too fast (`broker.quotas.connection_rates`). Idle connections are closed, and those whose request comes
in too slowly. At the limit, of all listeners or of one, the client with the most connections makes room for a client
with fewer: its connection that was idle for longest is closed. For clients that have not proved who they are yet, the
limit is lower (`broker.net.strangers`).
"""

from __future__ import annotations

import errno
import resource
import socket
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import trio

from barnabas.broker.log import EventLog
from barnabas.broker.net.address_limits import AddressLimits
from barnabas.broker.net.buffers import FrameBuffers, RequestMemory
from barnabas.broker.net.connection import Connection, Shared
from barnabas.broker.net.handshakes import Handshakes
from barnabas.broker.net.kernel_tls import KernelTls, find_kernel_tls
from barnabas.broker.net.listening import Bound
from barnabas.broker.net.poller import Poller
from barnabas.broker.net.strangers import Strangers
from barnabas.broker.net.tls import TlsTransport
from barnabas.broker.net.transport import PlainTransport
from barnabas.broker.net.turn import Turn
from barnabas.broker.quotas.connection_rates import ConnectionRates
from barnabas.broker.quotas.manager import QuotaManager
from barnabas.broker.registry import Handlers
from barnabas.broker.security.authorizer import Authorizer
from barnabas.broker.security.principals import ANONYMOUS, client_of
from barnabas.broker.security.sasl import Login
from barnabas.broker.security.tls import TlsListeners
from barnabas.broker.settings.config import BrokerConfig
from barnabas.broker.settings.listeners import NODES, Listener
from barnabas.broker.settings.ssl_keys import KERNEL_TLS
from barnabas.broker.workers import Turns, Workers

# Descriptors that connections never get, besides the share of the log files.
RESERVED_DESCRIPTORS = 128
# How often the broker checks for frames that come in too slowly.
PACE_CHECK_SECONDS = 0.5
# The most connections that came too fast and wait to be closed; further ones are closed at once.
MOST_REFUSED = 64
# The number of large requests and answers that threads decode and encode at a time.
LARGE_REQUESTS = 1
# macOS gives no process more than this, whatever its limit says.
MACOS_OPEN_MAX = 10_240


class Connections:
    """The connections of one broker. `serve` accepts them; a connection reports its own end."""

    def __init__(self, config: BrokerConfig, log: EventLog, turn: Turn, workers: Workers, tls: TlsListeners) -> None:
        self._config, self._log, self._turn = config, log, turn
        self._workers, self._tls = workers, tls
        self.memory = RequestMemory(config["queued.max.request.bytes"])
        self._buffers = FrameBuffers()
        self.poller = Poller(turn, config["barnabas.idle.poll.us"] / 1e6)
        self.handshakes = Handshakes(self.poller)
        self._all: set[Connection] = set()
        #: Connections that were accepted, by listener, and those that were refused.
        self.accepted: Counter[str] = Counter()
        self.refused = 0
        self._per_address: Counter[str] = Counter()
        self._per_client: Counter[str] = Counter()
        self._per_listener: Counter[str] = Counter()
        self._per_client_of: dict[str, Counter[str]] = {}  # by listener
        self.strangers = Strangers()
        self._address_limits = AddressLimits(config, log)
        self._refused: set[socket.socket] = set()  # to be closed later
        self._told: dict[str, float] = {}
        self._kernel_tls: KernelTls | None = None
        #: Called with each connection that has ended.
        self.on_end: Callable[[Connection], None] = _nobody_asks

    def __len__(self) -> int:
        return len(self._all)

    @property
    def per_listener(self) -> Mapping[str, int]:
        """The number of connections of each listener."""
        return self._per_listener

    def __iter__(self) -> Iterator[Connection]:
        return iter(list(self._all))

    def serve(
        self,
        handlers: Handlers,
        nursery: trio.Nursery,
        *,
        descriptors: int,
        authorizer: Authorizer | None,
        login: Callable[[Listener], Login | None],
        quotas: QuotaManager,
        rates: ConnectionRates,
    ) -> None:
        """Be ready to serve the connections that `accept` takes, in tasks of `nursery`. `descriptors` are those not
        reserved for log files. Each connection begins with the `login` of its listener."""
        self._login = login
        self._descriptors = max(16, descriptors - RESERVED_DESCRIPTORS)
        self._nursery, self._rates = nursery, rates
        self._address_limits.read(nursery.start_soon)
        if any(listener.protocol.is_encrypted for listener in self._config.listeners):
            self._kernel_tls = find_kernel_tls(self._config[KERNEL_TLS], self._log)
        self._shared = Shared(
            nursery=nursery,
            poller=self.poller,
            turn=self._turn,
            log=self._log,
            find=handlers.find,
            authorizer=authorizer,
            quotas=quotas,
            known_quotas=quotas.known,
            buffers=self._buffers,
            memory=self.memory,
            large_requests=Turns(LARGE_REQUESTS),
            max_request_bytes=self._config["socket.request.max.bytes"],
            tell_seldom=self._tell_seldom,
            max_strangers_bytes=self._config["sasl.server.max.receive.size"],
            bare=handlers.bare_tokens(),
            ended=self._ended,
            known=self.strangers.remove,
            client_changed=self._client_changed,
        )
        nursery.start_soon(self.poller.run)
        nursery.start_soon(self._close_idle)
        nursery.start_soon(self._close_slow)

    def accept(self, bound: list[Bound]) -> None:
        """Accept connections to these listeners."""
        for listener, sockets in bound:
            for sock in sockets:
                self._nursery.start_soon(self._accept, listener, sock)

    def close(self) -> None:
        """End all connections; the tasks of `serve` must have ended."""
        for connection in self:
            connection.close()
        for sock in self._refused:
            sock.close()
        self.poller.close()

    async def _accept(self, listener: Listener, listening: socket.socket) -> None:
        while True:
            try:
                sock, address = listening.accept()
            except (BlockingIOError, InterruptedError):
                await trio.lowlevel.wait_readable(listening)
                continue
            except OSError as error:
                if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                    self._tell_seldom("accept.failed", listener=listener.name, error=error.strerror)
                    await trio.sleep(0.1)  # no event tells when a descriptor is free again
                continue
            try:
                await self._take(sock, address, listener)
            except BaseException:
                sock.close()
                raise
            await trio.lowlevel.checkpoint()

    async def _take(self, sock: socket.socket, address: tuple[Any, ...], listener: Listener) -> None:
        """Accept a connection once it may come, or close it. Later ones of its listener wait behind it.

        The limits are for clients. A peer on the nodes' listener that does not log in counts as a stranger.
        """
        if listener.name == NODES:
            self._let_in(sock, address, listener)
            return
        delay = self._rates.delay(listener.name, trio.current_time())
        if delay:
            await trio.sleep(delay)
        delay = self._rates.refusal(address[0], trio.current_time())
        if delay:
            self.refused += 1
            self._tell_seldom("connection.too_fast", client=address[0])
            if len(self._refused) < MOST_REFUSED:
                self._refused.add(sock)
                self._nursery.start_soon(self._close_later, sock, delay)
            else:
                sock.close()
        elif not self._has_room(address[0], listener.name):
            self.refused += 1
            self._tell_seldom("connection.refused", client=address[0], connections=len(self._all))
            sock.close()
        else:
            self._let_in(sock, address, listener)

    async def _close_later(self, sock: socket.socket, delay: float) -> None:
        """Close a refused connection after a delay: if it were closed at once, the client would come back at once."""
        await trio.sleep(delay)
        self._refused.discard(sock)
        sock.close()

    @property
    def most(self) -> int:
        """The most connections that there may be."""
        configured: int = self._config["max.connections"]
        return min(configured, self._descriptors)

    def _has_room(self, host: str, listener: str) -> bool:
        """Whether one more connection may come from an address; another one may be closed for that."""
        if self._per_address[host] >= self._address_limits.of(host, self._nursery.start_soon):
            return False
        per_client = self._per_client_of.setdefault(listener, Counter())
        has_room = self._per_listener[listener] < self._config.of(listener, "max.connections")
        if not has_room and not self._make_room(host, per_client, listener):
            return False
        return len(self._all) < self.most or self._make_room(host, self._per_client)

    def _make_room(self, host: str, per_client: Mapping[str, int], listener: str | None = None) -> bool:
        """Close a connection of the client that has the most, if this address has fewer."""
        most, count = max(per_client.items(), key=lambda each: each[1], default=("", 0))
        if count <= per_client.get(client_of(ANONYMOUS, host), 0) + 1:
            return False
        mine = (each for each in self._all if each.client == most and listener in (None, each.listener))
        idle = min(mine, key=lambda each: each.last_active)
        idle.close("its client has the most connections, and another client's connection needs the room")
        return True

    def _let_in(self, sock: socket.socket, address: tuple[Any, ...], listener: Listener) -> None:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        client = client_of(ANONYMOUS, address[0])
        if listener.protocol.is_encrypted:
            tell = partial(self._tell_seldom, listener=listener.name, client=address[0])
            terms = self._tls.terms(listener.name)
            tls = TlsTransport(sock, self._workers, client, terms, self.handshakes, tell, self._kernel_tls)
            connection = Connection(self._shared, tls, address[0], address[1], listener, self._login(listener))
            tls.attach(connection.known_as, connection.read_soon, connection.send_soon)
        else:
            plain = PlainTransport(sock, self._workers, client)
            connection = Connection(self._shared, plain, address[0], address[1], listener, self._login(listener))
        self._all.add(connection)
        self.accepted[listener.name] += 1
        if listener.name != NODES:
            self._per_address[connection.host] += 1
        self._per_client[connection.client] += 1
        self._per_client_of.setdefault(connection.listener, Counter())[connection.client] += 1
        self._per_listener[connection.listener] += 1
        if connection.is_stranger:
            self.strangers.add(connection, self.most)
        try:
            connection.open()
        except OSError as error:  # more sockets than one process may watch
            connection.close(f"cannot be watched: {error.strerror}")

    def _ended(self, connection: Connection) -> None:
        self._all.discard(connection)
        self.on_end(connection)
        self.strangers.remove(connection)
        _less(self._per_listener, connection.listener)
        if connection.listener != NODES:
            _less(self._per_address, connection.host)
        _less(self._per_client, connection.client)
        _less(self._per_client_of[connection.listener], connection.client)

    def _client_changed(self, connection: Connection, before: str) -> None:
        if connection in self._all:
            for per_client in (self._per_client, self._per_client_of[connection.listener]):
                _less(per_client, before)
                per_client[connection.client] += 1

    def _tell_seldom(self, event: str, **fields: Any) -> None:
        """Log a warning that a client could cause any number of times: one every few seconds is enough."""
        now = trio.current_time()
        if now - self._told.get(event, -10.0) >= 5:
            self._told[event] = now
            self._log.warning(event, **fields)

    async def _close_idle(self) -> None:
        """Close connections on which nothing has moved for connections.max.idle.ms."""
        limit = self._config["connections.max.idle.ms"] / 1000
        if limit < 0:
            return
        while True:
            await trio.sleep(max(min(limit / 2, 30), 0.05))
            oldest = trio.current_time() - limit
            for connection in self:
                # A throttled client is silent, as it was asked to be.
                if connection.last_active < oldest and not (connection.is_muted and not connection.is_left):
                    connection.close()

    async def _close_slow(self) -> None:
        """Close connections whose request takes too long to come in, and those that keep memory from others."""
        suspects: set[Connection] = set()
        while True:
            await trio.sleep(PACE_CHECK_SECONDS)
            now = trio.current_time()
            for connection in self:
                opened = connection.is_strange_since()
                if opened is not None and now - opened > self._config["barnabas.login.timeout.ms"] / 1000:
                    connection.close("the client has not logged in for too long (barnabas.login.timeout.ms)")
                elif (reason := connection.overdue(now)) is not None:
                    connection.close(reason)
            suspects = self._close_still(now, suspects)

    def _close_still(self, now: float, suspects: set[Connection]) -> set[Connection]:
        """Close suspects that stand still again. Twice, because a late check may find bytes that were not read yet.

        Those that were idle for longest are closed first, and only as many as others need to get in.
        """
        still = [connection for connection in self._all if connection.stands_still(now)]
        for connection in sorted(still, key=lambda each: each.last_active):
            if connection in suspects and connection.stands_still(now):
                connection.close("the request made no progress, and others waited for its memory")
        return set(still)


def _nobody_asks(connection: Connection) -> None:
    """Ignore the end of a connection."""


def _less(counter: Counter[str], key: str) -> None:
    counter[key] -= 1
    if not counter[key]:
        del counter[key]


def raise_descriptor_limit() -> int:
    """Raise the limit to all descriptors that the operator allows; gives their number."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MACOS_OPEN_MAX if hard == resource.RLIM_INFINITY and sys.platform == "darwin" else hard
    if soft != wanted != resource.RLIM_INFINITY:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            soft = wanted
        except (OSError, ValueError):
            pass
    return 1 << 20 if soft == resource.RLIM_INFINITY else soft
