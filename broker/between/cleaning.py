"""What is left of removed topics on a node that does not own the metadata, and how the owner hears that it is gone.

A start needs to know of a removed topic for as long as something of it may be left: folders, and committed offsets. The
owner forgets it with its next snapshot. So it waits until each node has said through which offset all is gone: folders
are renamed when a change is applied, and tombstones are flushed here (KIP-631's heartbeat carries the offset).
"""

from __future__ import annotations

import trio

from barnabas.broker.between.following import Following
from barnabas.broker.between.forwarding import Owner
from barnabas.broker.between.peers import Unreachable
from barnabas.broker.coordinators.groups import Groups
from barnabas.broker.metadata.image import Listener, MetadataImage, TopicImage
from barnabas.broker.metadata.removals import Removals
from barnabas.wire.errors import KafkaError
from barnabas.wire.messages.broker_heartbeat import BrokerHeartbeatRequest

# How soon it is looked again whether groups are loaded, and what failed is tried again.
_LOOK_SECONDS = 1.0


class Cleaning(Listener):
    """Tells the owner through which offset this node has nothing left of removed topics."""

    def __init__(
        self,
        metadata: MetadataImage,
        groups: Groups,
        following: Following,
        owner: Owner,
        removals: Removals,
    ) -> None:
        self._metadata, self._groups, self._following = metadata, groups, following
        self._owner, self._removals = owner, removals
        self._due = trio.Event()
        self._due.set()  # what there was before is to be told, too

    def topic_changed(self, before: TopicImage | None, after: TopicImage | None) -> None:
        if after is None:
            self._due.set()

    def owner_came_back(self) -> None:
        """It has forgotten what it was told."""
        self._due.set()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self._due.wait()
            self._due = trio.Event()
            offset = self._following.offset
            try:
                await self._clean()
                node = self._metadata.node_id
                await self._owner.ask(BrokerHeartbeatRequest(broker_id=node, current_metadata_offset=offset))
            except (KafkaError, OSError, Unreachable):
                self._due.set()
                await trio.sleep(_LOOK_SECONDS)

    async def _clean(self) -> None:
        """Make durable that folders and offsets of removed topics are gone. Raises KafkaError, OSError."""
        while not self._groups.all_loaded:
            await trio.sleep(_LOOK_SECONDS)
        await self._removals.make_durable()
