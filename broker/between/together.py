"""The parts that only a node among several has: its connections to the others, and its place among them.

owner:  read the metadata -> choose leaders -> let the nodes connect -> load its partitions -> register -> serve
others: read the owner's metadata -> load their partitions -> let the nodes connect -> follow -> register -> serve
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Any

import trio

from barnabas.broker.between.channels import Channels
from barnabas.broker.between.cleaning import Cleaning
from barnabas.broker.between.desk import Desk
from barnabas.broker.between.followed_topics import FollowedProducerIds, FollowedTopics
from barnabas.broker.between.followers import Followers
from barnabas.broker.between.following import Following
from barnabas.broker.between.forwarding import Owner
from barnabas.broker.between.membership import Membership
from barnabas.broker.between.peers import Unreachable
from barnabas.broker.between.registration import Registration
from barnabas.broker.between.secret import read_secret
from barnabas.broker.between.snapshots import OfferedSnapshots
from barnabas.broker.coordinators.transactions import Transactions
from barnabas.broker.identity import Identity
from barnabas.broker.log import EventLog
from barnabas.broker.metadata.image import METADATA_TOPIC, MetadataImage
from barnabas.broker.metadata.image import Listener as MetadataListener
from barnabas.broker.metadata.producer_ids import ProducerIds
from barnabas.broker.metadata.topic_manager import TopicManager
from barnabas.broker.net import listening
from barnabas.broker.net.errors import Disconnected
from barnabas.broker.net.listening import Bound
from barnabas.broker.parts import Parts
from barnabas.broker.registry import Answer, Api, Context
from barnabas.broker.security.authentication import Authentication
from barnabas.broker.settings.config import BrokerConfig
from barnabas.broker.settings.keys import ConfigError
from barnabas.broker.settings.listeners import NODES, Listener, Protocol
from barnabas.broker.workers import Workers
from barnabas.storage.data_dir import DataDir
from barnabas.storage.errors import StorageError
from barnabas.wire.aliases import TopicPartition
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.broker_registration import BrokerRegistrationRequest
from barnabas.wire.messages.broker_registration import Listener as Registered


class Together:
    """A node among several."""

    def __init__(self, membership: Membership, config: BrokerConfig, parts: Parts, log: EventLog) -> None:
        """Binds the listener for the nodes. Raises ConfigError if that fails, or if there is no secret."""
        self.membership, self._parts, self._log = membership, parts, log
        listener = Listener(NODES, "127.0.0.1", 0, Protocol.SASL_PLAINTEXT)
        try:
            self._secret = read_secret(membership.data_dir)
        except (OSError, ValueError) as error:
            raise ConfigError(f"the nodes of {membership.data_dir} have no secret: {error}") from None
        self.bound = [Bound(listener, listening.bind_one(listener, config))]
        self.channels: Channels = parts.add(Channels(membership))
        self.owner = parts.add(Owner(membership, self.channels, log))
        self._followers: Followers = parts.find(Followers)
        if membership.owns:
            self._followers.others = [node for node in membership.ids if node != membership.node_id]
            self._followers.is_running = membership.is_running
        self.following: Following | None = None
        self._is_loaded = False
        #: Listeners for changes of the metadata.
        self.listeners: list[MetadataListener] = []

    def make_topics(self) -> TopicManager:
        """The part that changes topics, or asks the owner to change them."""
        if not self.membership.owns:
            followed = self._parts.make(FollowedTopics)
            followed.owner = self.owner
            return followed
        topics = self._parts.make(TopicManager)
        topics.placement.nodes = self.membership.ids
        topics.when_let_go = partial(self._parts.find(Workers).start, self._after_others_let_go)
        return topics

    async def _after_others_let_go(self, call: Callable[[], Awaitable[None]]) -> None:
        await self._followers.have_let_go()
        await call()

    def make_producer_ids(self) -> ProducerIds:
        """The part that allocates producer ids."""
        if self.membership.owns:
            return self._parts.make(ProducerIds)
        followed = self._parts.make(FollowedProducerIds)
        followed.owner = self.owner
        return followed

    def assemble(self, authentication: Authentication, transactions: Transactions) -> None:
        """Make the parts that need the parts of a broker."""
        parts = self._parts
        transactions.connect(self.channels)
        parts.add(self.membership)
        authentication.trust_nodes(self._secret)
        self._desk: Desk = parts.make(Desk)
        self._registration: Registration = parts.make(Registration)
        snapshots = parts.make(OfferedSnapshots)
        if self.membership.owns:
            self._followers.newest_snapshot = snapshots.newest
        else:
            self.following = parts.make(Following)
            self._cleaning = parts.make(Cleaning)
            self.following.on_connected = self._cleaning.owner_came_back
            self.listeners.append(self._cleaning)

    def around(self, api: Api, handle: Callable[[Context, Any], Answer]) -> Callable[[Context, Any], Answer]:
        """The handler that serves an API on this node."""
        if not self.membership.owns:
            return self.owner.hand_on(api, handle)
        if api.name == "WriteTxnMarkers":
            return self._once_loaded(handle)
        return self._followers.serve(api, handle)

    def _once_loaded(self, handle: Callable[[Context, Any], Answer]) -> Callable[[Context, Any], Answer]:
        """A handler that ends the connection until the owner has loaded its partitions: it accepts nodes before."""

        def serve(context: Context, request: Any) -> Answer:
            if not self._is_loaded:
                raise Disconnected("this node is loading the partitions that it leads")
            return handle(context, request)

        return serve

    # --- the start ----------------------------------------------------------------------------------------------------

    def led(self, metadata: MetadataImage) -> Iterator[TopicPartition]:
        """The partitions that this node leads."""
        for topic in metadata.topics.values():
            for index, leader in topic.partitions.items():
                if leader.node == self.membership.node_id:
                    yield topic.name, index
        if self.membership.owns:
            yield METADATA_TOPIC, 0

    async def to_load(self, metadata: MetadataImage, data_dir: DataDir, is_beginning: bool) -> list[TopicPartition]:
        """The partitions that this node opens at its start. Raises StorageError.

        Folders of unknown topics may have been copied here. The owner opens them if no other node has started yet.
        """
        found = list(self.led(metadata))
        if is_beginning:
            known = {METADATA_TOPIC, *metadata.topics}
            try:
                found += [key for key in await data_dir.folders() if key[0] not in known]
            except OSError as error:
                raise StorageError(f"cannot look for copied folders: {error}") from error
        return found

    def ask_me(self) -> None:
        """Let other nodes connect from now on. Raises OSError."""
        sockets = self.bound[0].sockets
        for sock in sockets:
            sock.listen(100)
        self.membership.announce(sockets[0].getsockname()[1])

    async def join(self, nursery: trio.Nursery, identity: Identity) -> None:
        """This node's partitions are loaded: follow the owner, and register this node for clients.

        Raises ConfigError if the owner refuses it.
        """
        self._is_loaded = True
        addresses = {bound.name: identity.advertised(bound.name) for bound in identity.bound}
        if self.following is None:
            await self._registration.register(identity.node_id, addresses, identity.rack)
            return
        nursery.start_soon(self.following.run)
        await self.following.caught_up()
        protocols = {each.name: list(Protocol).index(each.protocol) for each in identity.bound}
        request = BrokerRegistrationRequest(
            broker_id=identity.node_id,
            cluster_id=identity.cluster_id,
            listeners=[Registered(name, host, port, protocols[name]) for name, (host, port) in addresses.items()],
            rack=identity.rack,
        )
        while True:
            try:
                answer = await self.owner.ask(request)
                nursery.start_soon(self._cleaning.run)
                break
            except Unreachable:  # the owner has ended: ask again, in case the registration was lost
                continue
        if answer.error_code:
            raise ConfigError(f"the owner of the metadata refuses this node: {ErrorCode(answer.error_code).name}")

    def ready(self, handlers: Any, authorizer: Any) -> None:
        """Carry out the requests that other nodes forward, from now on."""
        self._desk.ready(handlers, authorizer)

    async def close(self) -> None:
        """Close the connections to other nodes."""
        if self.following is not None:
            await self.following.close()
        await self.channels.close()
        listening.close(self.bound)
