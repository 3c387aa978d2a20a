"""A broker process: the data directory, the metadata, the coordinators and the listeners, from start to clean stop.

start:  lock and load the data directory -> replay the metadata log -> make directories match -> listen
serve:  one poller for all connections; timers, flusher and retention beside it
stop:   close listeners and connections -> flush -> checkpoints -> clean-shutdown mark
"""

from __future__ import annotations

import time
from functools import partial
from typing import Any

import trio

import barnabas.broker.apis  # noqa: F401  registers the handlers
from barnabas.broker import listening
from barnabas.broker.config import BrokerConfig, Listener
from barnabas.broker.connections import Connections, raise_descriptor_limit
from barnabas.broker.deadlines import Deadlines
from barnabas.broker.fetch_sessions import FetchSessions
from barnabas.broker.groups import Groups
from barnabas.broker.log import Log
from barnabas.broker.metadata import METADATA_TOPIC, Metadata
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
# Reads from disk that fetches may have under way at one time.
COLD_READS = 4
# Produce requests whose batches threads look at, at one time.
VALIDATIONS = 2
# What storage tells that is an error; the rest is a warning.
STORAGE_ERRORS = frozenset(("partition.offline", "log.damaged"))


class Node:
    """One broker. `await run()` serves until it is cancelled; `stop()` ends it cleanly from inside."""

    def __init__(self, config: BrokerConfig, log: Log | None = None, *, io: Io | None = None) -> None:
        self.config, self.log, self.io = config, log or Log(), io or Io()
        self.node_id = config.node_id
        self.cluster_id = ""
        self.metadata = Metadata(self.node_id)
        self.fetch_sessions = FetchSessions(config["max.incremental.fetch.session.cache.slots"])
        self.cold_reads = trio.CapacityLimiter(COLD_READS)
        self.validations = trio.CapacityLimiter(VALIDATIONS)
        self.turn = Turn()
        self.deadlines = Deadlines()
        self.connections = Connections(config, self.log, self.turn, self.cold_reads)
        self.topics_without_enough_replicas: set[str] = set()
        self.told_once: set[str] = set()
        """What the log says once: events, and keys that have no effect."""
        self.bound: list[Listener] = []
        self.stopped = trio.Event()
        self._stop = trio.Event()
        self._progress_told = 0.0

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
        bound = listening.bind(self.config)
        self.bound = [listener for listener, _ in bound]
        try:
            descriptors = raise_descriptor_limit()
            self.data_dir = DataDir.open(
                self.config.data_dir, node_id=self.node_id, cluster_id=self.config["cluster.id"], io=self.io,
                tell=self._tell_storage,
            )  # fmt: skip
            self.cluster_id = self.data_dir.cluster_id
            try:
                async with trio.open_nursery() as nursery:
                    await self._start(nursery)
                    listening.listen(bound, self.config)
                    self.connections.serve(self, nursery, bound, descriptors=descriptors - self.data_dir.cache.limit)
                    self._announce()
                    task_status.started()
                    await self._stop.wait()
                    nursery.cancel_scope.cancel()
            finally:
                self.connections.close()
                with trio.CancelScope(shield=True):
                    listening.close(bound)
                    await self.data_dir.close()
        finally:
            listening.close(bound)
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
        nursery.start_soon(self.deadlines.run)
        nursery.start_soon(self._retention)
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

    def tell_once(self, event: str, **fields: Any) -> None:
        """A log line for the first of many times."""
        if event not in self.told_once:
            self.told_once.add(event)
            self.log.info(event, **fields)

    # --- chores -------------------------------------------------------------------------------------------------------

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
