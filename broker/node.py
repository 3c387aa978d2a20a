"""A broker process: the data directory, the metadata, the coordinators and the listeners, from start to clean stop.

start:  lock and load the data directory -> replay the metadata log -> make directories match -> listen
serve:  one poller for all connections; timers, flusher and retention beside it
stop:   close listeners and connections -> flush -> checkpoints -> clean-shutdown mark
"""

from __future__ import annotations

import errno
import resource
import socket
import time
from collections import Counter
from functools import partial
from typing import Any

import trio

import barnabas.broker.apis  # noqa: F401  registers the handlers
from barnabas.broker.buffers import ByteBudget
from barnabas.broker.config import BrokerConfig, Listener
from barnabas.broker.connection import Connection
from barnabas.broker.deadlines import Deadlines
from barnabas.broker.fetch_sessions import FetchSessions
from barnabas.broker.groups import Groups
from barnabas.broker.keys import ConfigError
from barnabas.broker.log import Log
from barnabas.broker.metadata import METADATA_TOPIC, Metadata
from barnabas.broker.poller import Poller
from barnabas.broker.producer_ids import ProducerIds
from barnabas.broker.queries import Queries
from barnabas.broker.topics import Topics, new_topic_id
from barnabas.broker.turn import Turn
from barnabas.storage.config import LogConfig
from barnabas.storage.data_dir import DataDir
from barnabas.storage.errors import StorageError
from barnabas.storage.flusher import Flusher
from barnabas.storage.io import Io
from barnabas.storage.vnode import Vnode

# The settings of topics are not those of the metadata log: a large topic is one large batch there.
METADATA_LOG = LogConfig(segment_bytes=256 << 20, max_message_bytes=64 << 20)
# Descriptors that connections never get: the log files' share comes on top (FileCache.limit).
RESERVED_DESCRIPTORS = 128
# How often frames that come in too slowly are looked for.
PACE_CHECK_SECONDS = 0.5
# Reads from disk that fetches may have under way at one time.
COLD_READS = 4
# Produce requests whose batches threads look at, at one time.
VALIDATIONS = 2
# Large requests and answers that threads decode and encode at one time.
LARGE_REQUESTS = 1
FREE_PORT_TRIES = 20
# What storage tells that is an error; the rest is a warning.
STORAGE_ERRORS = frozenset(("partition.offline", "log.damaged"))
LOOPBACK = ("127.0.0.1", "::1")


class Node:
    """One broker. `await run()` serves until it is cancelled; `stop()` ends it cleanly from inside."""

    def __init__(self, config: BrokerConfig, log: Log | None = None, *, io: Io | None = None) -> None:
        self.config, self.log, self.io = config, log or Log(), io or Io()
        self.node_id = config.node_id
        self.cluster_id = ""
        self.metadata = Metadata(self.node_id)
        self.fetch_sessions = FetchSessions(config["max.incremental.fetch.session.cache.slots"])
        self.request_bytes = ByteBudget(config["queued.max.request.bytes"])
        self.cold_reads = trio.CapacityLimiter(COLD_READS)
        self.validations = trio.CapacityLimiter(VALIDATIONS)
        self.large_requests = trio.CapacityLimiter(LARGE_REQUESTS)
        self.turn = Turn()
        self.poller = Poller(self.turn, config["barnabas.idle.poll.us"] / 1e6)
        self.deadlines = Deadlines()
        self.connections: set[Connection] = set()
        self.topics_without_enough_replicas: set[str] = set()
        self.told_once: set[str] = set()
        """What the log says once: events, and keys that have no effect."""
        self.bound: list[Listener] = []
        self.stopped = trio.Event()
        self._stop = trio.Event()
        self._progress_told = 0.0
        self._told: dict[str, float] = {}
        self._descriptors = 0
        self._per_address: Counter[str] = Counter()

    # --- what handlers use --------------------------------------------------------------------------------------------

    @property
    def vnodes(self) -> dict[tuple[str, int], Vnode]:
        return self.data_dir.vnodes

    def partition(self, topic: str | None, index: int) -> Vnode | None:
        """The vnode of a partition that clients may know of: of a topic that exists, not of the metadata log."""
        known = self.metadata.topics.get(topic)  # type: ignore[arg-type]
        return None if known is None or index not in known.partitions else self.vnodes.get((known.name, index))

    def topic_name(self, topic_id: bytes) -> str | None:
        """The name of a topic id, None if there is no such topic."""
        topic = self.metadata.by_id.get(topic_id)
        return None if topic is None else topic.name

    def advertised(self, listener: str) -> tuple[str, int]:
        """(host, port) that clients of a listener are told."""
        bound = next(b for b in self.bound if b.name == listener)
        told = self.config.advertised_for(listener, bound)
        return told.host, told.port

    def configs_changed(self, topic: str | None = None) -> None:
        """Put changed configuration into force: one topic's, or the broker's and so every topic's."""
        if topic is None:
            merged = self.config.cluster_wide(self.metadata.broker_configs.get("", {}))
            merged.update(self.metadata.broker_configs.get(str(self.node_id), {}))
            self.config.set_dynamic(merged)
        for changed in self.metadata.topics.values() if topic is None else [self.metadata.topics[topic]]:
            self.topics.apply_configs(changed)
            if int(changed.configs.get("min.insync.replicas", self.config["min.insync.replicas"])) > 1:
                self.topics_without_enough_replicas.add(changed.name)
            else:
                self.topics_without_enough_replicas.discard(changed.name)

    # --- life ---------------------------------------------------------------------------------------------------------

    @property
    def stopping(self) -> bool:
        return self._stop.is_set()

    def stop(self) -> None:
        """Begin a clean stop; `run` returns when it is done."""
        self._stop.set()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve. Reports started once the first request can be answered.

        Raises ConfigError (port in use, address not here) and storage's one-line errors (data directory in use, of
        another cluster, not writable).
        """
        sockets = self._bind()
        try:
            self._descriptors = _raise_descriptor_limit()
            self.data_dir = DataDir.open(
                self.config.data_dir, node_id=self.node_id, cluster_id=self.config["cluster.id"], io=self.io,
                tell=self._tell_storage,
            )  # fmt: skip
            self.cluster_id = self.data_dir.cluster_id
            try:
                async with trio.open_nursery() as nursery:
                    await self._start(nursery)
                    for name, sock in sockets:
                        self._listen(name, sock)
                        nursery.start_soon(self._accept, name, sock, nursery)
                    self._announce()
                    task_status.started()
                    await self._stop.wait()
                    nursery.cancel_scope.cancel()
            finally:
                for connection in list(self.connections):
                    connection.close()
                self.poller.close()
                with trio.CancelScope(shield=True):
                    for _, sock in sockets:
                        sock.close()
                    await self.data_dir.close()
        finally:
            for _, sock in sockets:
                sock.close()
            self.stopped.set()

    async def _start(self, nursery: trio.Nursery) -> None:
        self.flusher = Flusher(self.io, around=self.turn)
        nursery.start_soon(self.flusher.run)
        self.topics = Topics(self.config, self.metadata, self.data_dir, self.flusher, self.log)
        await self.data_dir.load(
            self._loading_progress,
            config_of=lambda topic: METADATA_LOG if topic == METADATA_TOPIC else self.config.log_config({}),
        )
        nursery.start_soon(partial(self.data_dir.run, on_error=self._storage_failed))
        if (METADATA_TOPIC, 0) not in self.vnodes:
            self.data_dir.create_vnode(METADATA_TOPIC, 0, new_topic_id(), METADATA_LOG)
        self.metadata.load(self.vnodes[METADATA_TOPIC, 0])
        self.configs_changed()
        await self.topics.reconcile()
        self.producer_ids = ProducerIds(self.topics)
        self.groups = Groups(self)
        self.topics.on_created.append(lambda topic: self.configs_changed(topic.name))
        self.topics.on_deleted.append(self.groups.topic_deleted)
        self.queries = Queries(self)
        self.queries.attach(self.topics)
        await self.groups.start(nursery)
        self.nursery = nursery
        nursery.start_soon(self.poller.run)
        nursery.start_soon(self.deadlines.run)
        nursery.start_soon(self._retention)
        nursery.start_soon(self._close_idle)
        nursery.start_soon(self._close_slow)
        nursery.start_soon(self.queries.run)

    def _announce(self) -> None:
        """Say in the data directory where the first listener is, for processes on this machine that read the files."""
        first = self.bound[0]
        host = "127.0.0.1" if first.host in ("", "::", "0.0.0.0") else first.host
        try:
            self.data_dir.announce(f"[{host}]:{first.port}" if ":" in host else f"{host}:{first.port}")
        except OSError as error:  # readers can be told the address by their option
            self.log.warning("address.not.written", error=error)

    def _loading_progress(self, done: int, total: int, what: str) -> None:
        """Say how recovery goes, every few seconds."""
        now = time.monotonic()
        if now - self._progress_told > 2 or (done == total and self._progress_told):
            self._progress_told = now
            self.log.info("recovery", done=done, total=total, partition=what)

    # --- listening ----------------------------------------------------------------------------------------------------

    def _bind(self) -> list[tuple[str, socket.socket]]:
        """Bind every listener, before anything on disk is touched. A loopback listener is bound on both families, as
        `localhost` means ::1 first on some machines."""
        bound: list[tuple[str, socket.socket]] = []
        try:
            for listener in self.config.listeners:
                sockets = self._bind_listener(listener)
                bound += [(listener.name, sock) for sock in sockets]
                self.bound.append(Listener(listener.name, listener.host, sockets[0].getsockname()[1]))
        except ConfigError:
            for _, sock in bound:
                sock.close()
            raise
        return bound

    def _bind_listener(self, listener: Listener) -> list[socket.socket]:
        """All addresses of a listener, on one port. A free port may be taken in the other family: then another one."""
        tries = 1 if listener.port else FREE_PORT_TRIES
        while True:
            tries -= 1
            sockets: list[socket.socket] = []
            port = listener.port
            try:
                for family, host in _addresses(listener):
                    sock = _bind_one(listener, family, host, port, optional=bool(sockets))
                    if sock is not None:
                        self._tune_listener(sock)
                        port = sock.getsockname()[1]
                        sockets.append(sock)
            except ConfigError:
                for sock in sockets:
                    sock.close()
                if not tries:
                    raise
            else:
                return sockets

    def _tune_listener(self, sock: socket.socket) -> None:
        """Buffer sizes are inherited by the accepted sockets."""
        for key, option in (("socket.send.buffer.bytes", socket.SO_SNDBUF),
                            ("socket.receive.buffer.bytes", socket.SO_RCVBUF)):  # fmt: skip
            if key in self.config.static and self.config[key] > 0:
                sock.setsockopt(socket.SOL_SOCKET, option, self.config[key])

    def _listen(self, name: str, sock: socket.socket) -> None:
        try:
            sock.listen(self.config["socket.listen.backlog.size"])
        except OSError as error:  # bound at the same time by a process that was quicker to listen
            raise ConfigError(
                f"Listener {name}: cannot listen on port {sock.getsockname()[1]}: {error.strerror}"
            ) from None

    async def _accept(self, name: str, listening: socket.socket, nursery: trio.Nursery) -> None:
        while True:
            try:
                sock, address = listening.accept()
            except (BlockingIOError, InterruptedError):
                await trio.lowlevel.wait_readable(listening)
                continue
            except OSError as error:
                if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                    self._tell_seldom("accept.failed", listener=name, error=error.strerror)
                    await trio.sleep(0.1)  # no event tells when a descriptor is free again
                continue
            count = len(self.connections)
            if (
                count >= min(self.config["max.connections"], self._connection_limit())
                or self._per_address[address[0]] >= self.config["max.connections.per.ip"]
            ):
                self._tell_seldom("connection.refused", client=address[0], connections=count)
                sock.close()
                await trio.lowlevel.checkpoint()
                continue
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            self._connected(Connection(self, sock, address, name))
            await trio.lowlevel.checkpoint()

    def _connection_limit(self) -> int:
        """How many connections the process's descriptors allow: log files must never go short of them."""
        return max(16, self._descriptors - self.data_dir.cache.limit - RESERVED_DESCRIPTORS)

    def tell_once(self, event: str, **fields: Any) -> None:
        """A log line for the first of many times."""
        if event not in self.told_once:
            self.told_once.add(event)
            self.log.info(event, **fields)

    def _tell_seldom(self, event: str, **fields: Any) -> None:
        """A warning that a client could make happen any number of times: one every few seconds is enough."""
        now = trio.current_time()
        if now - self._told.get(event, -10.0) >= 5:
            self._told[event] = now
            self.log.warning(event, **fields)

    def _connected(self, connection: Connection) -> None:
        self.connections.add(connection)
        self._per_address[connection.host] += 1
        try:
            connection.open()
        except OSError as error:  # more sockets than the system lets one process watch
            connection.close(f"cannot be watched: {error.strerror}")

    def disconnected(self, connection: Connection) -> None:
        """A connection has ended."""
        self.connections.discard(connection)
        self._per_address[connection.host] -= 1
        if not self._per_address[connection.host]:
            del self._per_address[connection.host]

    # --- chores -------------------------------------------------------------------------------------------------------

    async def _close_idle(self) -> None:
        """Close connections on which nothing has moved for connections.max.idle.ms."""
        limit = self.config["connections.max.idle.ms"] / 1000
        if limit < 0:
            return
        while True:
            await trio.sleep(max(min(limit / 2, 30), 0.05))
            oldest = trio.current_time() - limit
            for connection in list(self.connections):
                if connection.last_active < oldest:
                    connection.close()

    async def _close_slow(self) -> None:
        """Close connections whose request takes too long to come in."""
        while True:
            await trio.sleep(PACE_CHECK_SECONDS)
            now = trio.current_time()
            for connection in list(self.connections):
                if connection.is_too_slow(now):
                    connection.close("the request came in too slowly")

    def _tell_storage(self, event: str, /, **fields: object) -> None:
        """What storage found or did."""
        (self.log.error if event in STORAGE_ERRORS else self.log.warning)(event, **fields)

    def _storage_failed(self, error: StorageError) -> None:
        self.log.error("storage.failed", error=error)

    async def _retention(self) -> None:
        """Drop segments that are past their topic's retention."""
        while True:
            await trio.sleep(self.config["log.retention.check.interval.ms"] / 1000)
            now_ms = time.time_ns() // 1_000_000
            for vnode in list(self.vnodes.values()):
                if vnode.topic != METADATA_TOPIC and vnode.error is None:
                    try:
                        vnode.apply_retention(now_ms)
                    except StorageError as error:  # this partition is offline now; the others go on
                        self._storage_failed(error)
                    await trio.lowlevel.checkpoint()


def _raise_descriptor_limit() -> int:
    """Use all descriptors that the operator allows; gives their number."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard and hard != resource.RLIM_INFINITY:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            soft = hard
        except (OSError, ValueError):
            pass
    return 1 << 20 if soft == resource.RLIM_INFINITY else soft


def _addresses(listener: Listener) -> list[tuple[socket.AddressFamily, str]]:
    """The (family, host) pairs to bind. Raises ConfigError for a host that is not known."""
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
    """A bound socket; None if the address family is missing and another address of the listener will do.

    Raises ConfigError if the port is in use or the address is not one of this machine.
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
