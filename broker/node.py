"""A broker process: the data directory, the metadata, the coordinators and the listeners, from start to clean stop.

start:  lock the data directory -> replay the metadata log -> load the partitions -> tell the parts the image
        -> make directories match -> listen
serve:  one poller for all connections; timers, flusher, retention and the log cleaner run beside it
stop:   close listeners and connections -> flush -> checkpoints -> clean-shutdown mark
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import trio

import barnabas.broker.apis  # noqa: F401  registers the handlers
from barnabas.broker.between.followers import Followers
from barnabas.broker.between.leaders import spread
from barnabas.broker.between.membership import Membership
from barnabas.broker.between.moves import Moves
from barnabas.broker.clock import Clock, Jumps
from barnabas.broker.coordinators.groups import Groups
from barnabas.broker.coordinators.transactions import Transactions
from barnabas.broker.identity import Identity
from barnabas.broker.jobs.owners import Owners
from barnabas.broker.jobs.queries import Queries
from barnabas.broker.jobs.streams import Streams
from barnabas.broker.log import EventLog
from barnabas.broker.metadata.image import METADATA_TOPIC, METADATA_TOPIC_ID, MetadataImage
from barnabas.broker.metadata.producer_ids import ProducerIds
from barnabas.broker.metadata.removals import Removals
from barnabas.broker.metadata.snapshots import MetadataSnapshots
from barnabas.broker.metadata.topic_manager import TopicManager
from barnabas.broker.metrics.page import Page
from barnabas.broker.metrics.telemetry import ClientTelemetry
from barnabas.broker.net import listening
from barnabas.broker.net.connections import Connections, raise_descriptor_limit
from barnabas.broker.net.turn import Turn
from barnabas.broker.nodes import Nodes
from barnabas.broker.partitions import Partitions
from barnabas.broker.parts import Parts
from barnabas.broker.quotas.connection_rates import ConnectionRates
from barnabas.broker.quotas.manager import QuotaManager
from barnabas.broker.reading.fetch_sessions import FetchSessions
from barnabas.broker.reading.offsets import Offsets
from barnabas.broker.registry import Handlers
from barnabas.broker.security.audit import Audit
from barnabas.broker.security.authentication import Authentication
from barnabas.broker.security.authorizer import STANDARD, AclAuthorizer, Authorizer
from barnabas.broker.security.tls import TlsListeners
from barnabas.broker.settings.config import BrokerConfig
from barnabas.broker.settings.keys import ConfigError
from barnabas.broker.settings.listeners import Listener
from barnabas.broker.settings.resource_configs import ResourceConfigs
from barnabas.broker.workers import Workers, go_through
from barnabas.groupcoord.deadlines import Deadlines
from barnabas.groupcoord.timers import run_timers
from barnabas.storage.cleaner import Cleaner
from barnabas.storage.config import LogConfig
from barnabas.storage.data_dir import DataDir
from barnabas.storage.errors import StorageError
from barnabas.storage.flusher import Flusher
from barnabas.storage.garbage import KeptOut
from barnabas.storage.io import Io
from barnabas.storage.pace import Pace, cpu_of_this_thread
from barnabas.storage.vnode import Vnode

if TYPE_CHECKING:
    from barnabas.broker.between.together import Together
    from barnabas.broker.http.listener import HttpListener
    from barnabas.broker.metrics.exposition import Metrics

# The settings of topics do not apply to the metadata log: the creation of a large topic is one large batch in it.
METADATA_LOG = LogConfig(segment_bytes=256 << 20, max_message_bytes=64 << 20)
# Events of storage that are errors; all others are warnings.
STORAGE_ERRORS = frozenset(("partition.offline", "log.damaged", "metadata.snapshot.damaged"))


class Node:
    """One broker. `await run()` serves until it is cancelled; `stop()` shuts it down cleanly from inside."""

    def __init__(
        self,
        config: BrokerConfig,
        log: EventLog | None = None,
        *,
        io: Io | None = None,
        clock: Clock | None = None,
        handlers: Callable[..., Handlers] = Handlers,
        membership: Membership | None = None,
    ) -> None:
        """`membership` names the other nodes, if there are any."""
        self.config, self.log, self.io = config, log or EventLog(), io or Io()
        self.identity = Identity(config)
        self.clock = clock or Clock()
        self._handlers = handlers
        self.metadata = MetadataImage(config.node_id, self.clock)
        self.fetch_sessions = FetchSessions(config["max.incremental.fetch.session.cache.slots"])
        self.workers = Workers()
        self.turn = Turn()
        self.deadlines = Deadlines(trio.current_time)
        self.tls = TlsListeners(config, self.log, self.workers)
        self.connections = Connections(config, self.log, self.turn, self.workers, self.tls)
        self.metrics: Metrics | None = None
        self.http: HttpListener | None = None
        if config.http is not None:
            self._listen_for_http()
        self.is_serving = False
        self.stopped = trio.Event()
        self._stop = trio.Event()
        self._parts = Parts(
            *(self.config, self.identity, self.metadata, self.fetch_sessions, self.io, self.workers, self.deadlines),
            *(self.turn, self.clock, self.log, self.tls),
        )
        self.followers = self._parts.make(Followers)
        self._membership = membership
        self.identity.is_supervised = membership is not None
        self.together: Together | None = None
        self._progress_told, self._loading_told = time.monotonic(), False
        #: Called during a start with the number of partitions loaded so far, and their total.
        self.on_recovery: Callable[[int, int], None] | None = None

    def _listen_for_http(self) -> None:
        """Raises ConfigError if a package that it needs is not installed."""
        try:
            from barnabas.broker.http.listener import HttpListener
            from barnabas.broker.metrics.exposition import Metrics
        except ModuleNotFoundError as error:
            remedy = "install it with pip install 'barnabas[http]'"
            raise ConfigError(f"barnabas.http.listen needs {error.name}: {remedy}") from None
        self.metrics = Metrics()
        self.http = HttpListener(self.config, self.log, self.tls, self.metrics)

    # --- what other parts ask -----------------------------------------------------------------------------------------

    @property
    def vnodes(self) -> Mapping[tuple[str, int], Vnode]:
        """All vnodes of this broker, by topic and partition."""
        return self.data_dir.vnodes

    @property
    def bound(self) -> list[Listener]:
        """The listeners, with the ports that they are bound to."""
        return self.identity.bound

    # --- life ---------------------------------------------------------------------------------------------------------

    @property
    def stopping(self) -> bool:
        return self._stop.is_set()

    def stop(self) -> None:
        """Begin a clean stop; `run` returns when it is done."""
        self._stop.set()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve. Reports started once the first request can be answered.

        Raises ConfigError (port in use, address not on this machine) and storage's one-line errors (data directory in
        use, or of another cluster, or not writable).
        """
        bound = listening.bind(self.config)
        self.identity.bound = [listener for listener, _ in bound]
        try:
            if self.http is not None:
                self.http.bind()
            if self._membership is not None:
                from barnabas.broker.between.together import Together

                self.together = Together(self._membership, self.config, self._parts, self.log)
            descriptors = raise_descriptor_limit()
            self.data_dir = DataDir.open(
                self.config.data_dir,
                node_id=self.identity.node_id,
                cluster_id=self.config["cluster.id"],
                io=self.io,
                tell=self._tell_storage,
                member=self._membership is not None,
            )
            self.identity.cluster_id = self.data_dir.claim.cluster_id
            with KeptOut(lambda: len(self.vnodes) + self.data_dir.cache.open_logs):
                try:
                    async with trio.open_nursery() as nursery:
                        if self.http is not None:
                            await self.http.run(nursery)
                        self._assemble()
                        self.owners.authorizer = self._authorizer()
                        self._descriptors = descriptors
                        await self._start(nursery)
                        acls = len(self.metadata.acls)
                        if acls and self.owners.authorizer is None:
                            remedy = f"set authorizer.class.name={STANDARD}"
                            self.log.warning("acls.not.enforced", acls=acls, remedy=remedy)
                        if self.together is None:
                            self._serve(nursery)
                        listening.listen(bound, self.config)
                        self.connections.accept(bound)
                        if self.http is not None:
                            peers = None if self.together is None else self.together.channels
                            self.http.ready(self._parts, self.owners.authorizer, peers)
                        if self.together is not None:
                            self.together.ready(self._handlers_made, self.owners.authorizer)
                        if self.together is None or self.together.membership.owns:
                            self._announce()
                        self.is_serving = True
                        task_status.started()
                        await self._stop.wait()
                        nursery.cancel_scope.cancel()
                finally:
                    self.connections.close()
                    with trio.CancelScope(shield=True):
                        listening.close(bound)
                        if self.together is not None:
                            await self.together.close()
                        await self.data_dir.close()
        finally:
            listening.close(bound)
            if self.http is not None:
                self.http.close()
            self.stopped.set()

    async def _start(self, nursery: trio.Nursery) -> None:
        self.workers.nursery = nursery
        nursery.start_soon(self.flusher.run)
        together = self.together
        await self._read_metadata()
        here = self.identity.node_id
        nodes = range(here, here + 1) if together is None else together.membership.ids
        is_beginning = together is None or (together.membership.owns and together.membership.is_beginning)
        if nodes[0] == here and is_beginning:
            await spread(self.metadata, nodes, self.flusher, self.log)
        if together is not None and is_beginning:
            await self.topics.sweep()  # so that no folder of a removed topic is taken for a copied one
        if together is not None and together.membership.owns:
            self._let_nodes_ask(together, nursery)
        await self.data_dir.load(
            self._loading_progress,
            config_of=self.topics.log_config_of,
            keys=None if together is None else await together.to_load(self.metadata, self.data_dir, is_beginning),
        )
        nursery.start_soon(partial(self.data_dir.run, on_error=self._storage_failed))
        await go_through(self.metadata.tell_all())
        await self.topics.settle()
        if together is None or together.membership.owns:
            await self.topics.finalize_features()
            await self.topics.reconcile()
            await self.queries.open_all()
        else:
            await self.topics.make_all_vnodes()
        if together is not None:
            await self.topics.sweep()
        await self.groups.start(nursery)
        await self.transactions.start(nursery)
        await nursery.start(run_timers, self.deadlines)
        nursery.start_soon(self._retention)
        nursery.start_soon(self.cleaner.run)
        nursery.start_soon(self.tls.watch)
        nursery.start_soon(self.authentication.run)
        if together is None or together.membership.owns:
            nursery.start_soon(self.queries.driver.run)
            nursery.start_soon(self.metadata_snapshots.run)
            nursery.start_soon(self.owners.run)
            nursery.start_soon(self.authentication.remove_what_expires)
        if together is not None:
            nursery.start_soon(self.topics.run_missing)
            if together.membership.owns:
                nursery.start_soon(self.moves.run)
            else:
                self._let_nodes_ask(together, nursery)
            await together.join(nursery, self.identity)

    async def _read_metadata(self) -> None:
        """Read the current image. The listeners are not told of it yet."""
        following = None if self.together is None else self.together.following
        if following is not None:
            await following.begin()
            return
        log = await self.data_dir.load_first((METADATA_TOPIC, 0), METADATA_LOG)
        log = log or self.data_dir.create_vnode(METADATA_TOPIC, 0, METADATA_TOPIC_ID, METADATA_LOG)
        snapshots = self.data_dir.snapshots(METADATA_TOPIC, 0)
        await go_through(self.metadata.replay(log, snapshots, self._tell_storage))

    def _let_nodes_ask(self, together: Together, nursery: trio.Nursery) -> None:
        """Serve the other nodes from now on. Clients still have to wait."""
        self._serve(nursery)
        self.connections.on_end = self.followers.left
        self.connections.accept(together.bound)
        together.ask_me()

    def _serve(self, nursery: trio.Nursery) -> None:
        """Get ready to serve connections."""
        self._handlers_made = self._parts.add(self._made_handlers(nursery))
        self.connections.serve(
            self._handlers_made,
            nursery,
            descriptors=self._descriptors - self.data_dir.most_open_files,
            authorizer=self.owners.authorizer,
            login=self.authentication.login,
            quotas=self.quotas,
            rates=ConnectionRates(self.config, self.metadata),
        )

    def _made_handlers(self, nursery: trio.Nursery) -> Handlers:
        """The handlers that serve requests. If metrics can be read, requests are counted."""
        given: dict[str, Any] = {} if self.together is None else {"around": self.together.around}
        if self.metrics is not None:
            self._parts.find(Page).render = self.metrics.render
            self.metrics.start(self._parts, self.flusher, self.connections, nursery)
            given["endpoint"] = self.metrics.requests.endpoint
        return self._handlers(self._parts, **given)

    def _assemble(self) -> None:
        """Make the parts that need the metadata log, and list its listeners: settings come before their users."""
        pace = Pace(cpu_of_this_thread())
        throttle = self.config.cleaner_throttle(pace.bytes_per_second)
        self.cleaner = Cleaner(
            self.vnodes,
            lambda: self.config.cleaner_settings(throttle),
            self.clock.wall_ms,
            self._tell_cleaner,
            self.data_dir.checkpoint,
            pace,
        )
        parts = self._parts
        parts.add(self.data_dir)
        parts.add(self.connections)
        self.audit = parts.add(Audit(self.log, trio.current_time))
        self.flusher = parts.add(Flusher(self.io, around=self.turn))
        self.partitions = parts.add(Partitions(self.metadata, self.vnodes))
        nodes = parts.make(Nodes)
        self.quotas = parts.make(QuotaManager)
        parts.add(Page())
        self.telemetry = parts.add(ClientTelemetry(self.metadata))
        self.telemetry.is_on = self.http is not None
        together = self.together
        self.topics = parts.make(TopicManager) if together is None else together.make_topics()
        self.producer_ids = parts.make(ProducerIds) if together is None else together.make_producer_ids()
        self.groups = parts.make(Groups)
        self.transactions = parts.make(Transactions)
        offsets = parts.make(Offsets)
        self.queries = parts.make(Queries) if together is None else self._queries_of(together)
        self.streams = parts.make(Streams)
        self.owners = parts.make(Owners)
        self.configs = parts.make(ResourceConfigs)
        self.authentication = parts.make(Authentication)
        self.authentication.trust_driver(self.queries.secret.writer_id)
        self.tls.trust_driver(self.queries.secret.writer_id)
        self.moves = parts.make(Moves)
        parts.make(Removals)
        self.metadata_snapshots = parts.make(
            MetadataSnapshots,
            offsets_loaded=lambda: self.groups.all_loaded,
            others_clean=lambda: self.followers.are_clean,
        )
        if together is not None:
            nodes.controller_id = together.membership.owner
            together.assemble(self.authentication, self.transactions)
            offsets.peers = self.configs.peers = together.channels
        self.metadata.listeners = [
            self.configs,
            self.authentication,
            self.topics,
            self.groups,
            self.transactions,
            self.queries,
            self.streams,
            self.owners,
            self.moves,
            self.metadata_snapshots,
            *(together.listeners if together is not None else ()),
        ]

    def _queries_of(self, together: Together) -> Queries:
        """The query topics of one of several nodes. Only the owner of the metadata makes new ones."""
        from barnabas.broker.jobs.followed_queries import FollowedQueries

        if together.membership.owns:
            queries = self._parts.make(Queries)
            queries.everywhere = self.followers.have_applied
            return queries
        followed = self._parts.make(FollowedQueries)
        followed.owner = together.owner
        return followed

    def _authorizer(self) -> Authorizer | None:
        """The authorizer that decides what clients may do, if the configuration names one."""
        if not self.config["authorizer.class.name"]:
            return None
        return AclAuthorizer(
            self.metadata.acls,
            self.config["super.users"],
            self.config["allow.everyone.if.no.acl.found"],
            self.audit,
            self.log,
            self.owners.shown_by,
        )

    def _announce(self) -> None:
        """Write the first listener's address to the data directory, for local processes that read its files."""
        try:
            self.data_dir.claim.announce(self.identity.local_address)
            local = self.identity.local_listener
            if local.protocol.is_encrypted:
                certificates = self.tls.certificates(local.name)
                self.queries.secret.tell_how(local.protocol, certificates, self.tls.driver(local.name))
            else:
                self.queries.secret.tell_how(local.protocol)
        except OSError as error:  # these processes have an option for the address
            self.log.warning("address.not.written", error=error)

    def _loading_progress(self, done: int, total: int, what: str) -> None:
        """Log the progress of loading every two seconds, and its end if any progress was logged."""
        now = time.monotonic()
        if now - self._progress_told >= 2 or (done == total and self._loading_told):
            self._progress_told, self._loading_told = now, done < total
            self.log.info("recovery", done=done, total=total, partition=what)
            if self.http is not None:
                self.http.recovering(done, total)
            if self.on_recovery is not None:
                self.on_recovery(done, total)

    # --- chores -------------------------------------------------------------------------------------------------------

    def _tell_storage(self, event: str, /, **fields: object) -> None:
        """Log an event of storage."""
        (self.log.error if event in STORAGE_ERRORS else self.log.warning)(event, **fields)

    def _tell_cleaner(self, event: str, /, **fields: object) -> None:
        (self.log.info if event == "log.cleaned" else self.log.warning)(event, **fields)

    def _storage_failed(self, error: StorageError) -> None:
        self.log.error("storage.failed", error=error)

    def _tell_of_jump(self, jump_ms: int) -> None:
        self.log.warning(
            "clock.jumped",
            seconds=round(jump_ms / 1000),
            effect="records get their timestamps from the clock, and retention.ms counts by it",
            action="retention skips one check" if jump_ms > 0 else "none",
        )

    async def _retention(self) -> None:
        """Delete segments that are past their topic's retention.

        After the clock was set forward, all records are older than they seemed: one check is left out, so that somebody
        can set it right.
        """
        jumps = Jumps(self.clock)
        while True:
            await trio.sleep(self.config["log.retention.check.interval.ms"] / 1000)
            if jump := jumps.since_last():
                self._tell_of_jump(jump)
                if jump > 0:
                    continue
            now_ms = self.clock.wall_ms()
            for vnode in list(self.vnodes.values()):
                if vnode.topic != METADATA_TOPIC and vnode.error is None:
                    try:
                        vnode.apply_retention(now_ms)
                    except StorageError as error:  # this partition is now offline; the others continue
                        self._storage_failed(error)
                    await trio.lowlevel.checkpoint()
