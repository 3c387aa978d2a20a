"""Tells the owner of the metadata when a node has nothing left of removed topics.

A start needs the record of a removed topic as long as any folder or committed offset of it may be left. The owner drops
that record with its next snapshot. So it first waits until each node has reported through which offset nothing is left:
folders are renamed when a change is applied, and tombstones are flushed here (KIP-631's heartbeat carries the offset).
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

# The interval at which the node checks whether groups are loaded, and repeats what failed.
_LOOK_SECONDS = 1.0


class Cleaning(Listener):
    """Reports to the owner through which offset this node has nothing left of removed topics."""

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
        self._due.set()  # report removals from before this start, too

    def topic_changed(self, before: TopicImage | None, after: TopicImage | None) -> None:
        if after is None:
            self._due.set()

    def owner_came_back(self) -> None:
        """Report again: an owner that was restarted has forgotten the reports."""
        self._due.set()

    async def run(self) -> None:
        """Report until cancelled."""
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
        """Make the removal of folders and offsets durable. Raises KafkaError, OSError."""
        while not self._groups.all_loaded:
            await trio.sleep(_LOOK_SECONDS)
        await self._removals.make_durable()
