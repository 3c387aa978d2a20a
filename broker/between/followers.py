"""On the owner of the metadata: which nodes follow its log, and how far each has applied it.

A node fetches the log as a replica does. A node that fetches from an offset has applied everything before it, so each
fetch tells how far its node is (observers in KIP-595 do the same). A change is answered when every node that follows
has applied it, so a client that gets the answer finds the change at any node.

A node that is starting serves no clients, and reads the whole log first, so no change waits for it. Nor does one wait
for a node that has ended, which the kernel shows by unlocking its file. But changes wait for a running node that does
not follow, because the owner was restarted or because the node hangs: soon it follows, or the supervisor kills it.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator, Sequence
from typing import TYPE_CHECKING, Any

import trio

from barnabas.broker.between.owned import OWNERS
from barnabas.broker.log import EventLog
from barnabas.broker.metadata.image import METADATA_TOPIC, METADATA_TOPIC_ID, MetadataImage
from barnabas.broker.partitions import Partitions
from barnabas.broker.registry import Answer, Api, Context
from barnabas.storage.snapshots import SnapshotId
from barnabas.storage.vnode import Vnode
from barnabas.wire.errors import ErrorCode, KafkaError
from barnabas.wire.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from barnabas.wire.messages.fetch import SnapshotId as SnapshotIdOnWire

if TYPE_CHECKING:
    from barnabas.broker.net.connection import Connection

#: The replica epoch in the fetches of a node that is starting, and of one that follows the log.
BEGINS, FOLLOWS = 0, 1
# How long a change waits for a node before this is logged.
_TELL_SECONDS = 1.0
_LOOK_SECONDS = 0.1


class MetadataLog(Partitions):
    """The only partition that nodes may fetch: the metadata log."""

    def __init__(self, metadata: MetadataImage) -> None:
        super().__init__(metadata, {})

    def topic_name(self, topic_id: bytes) -> str | None:
        return METADATA_TOPIC if topic_id == METADATA_TOPIC_ID else None

    def led(self, topic: str | None, index: int) -> Vnode:
        if (topic, index) != (METADATA_TOPIC, 0) or not self._metadata.has_log:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "this node does not own the metadata")
        return self._metadata.log

    def check_leader_epoch(self, vnode: Vnode, claimed: int) -> None:
        """Does nothing: the owner never changes."""


class Followers:
    """The followers of this node. There are none if it is the only node, or does not own the metadata."""

    def __init__(self, metadata: MetadataImage, log: EventLog) -> None:
        self._metadata, self._log = metadata, log
        self.door = MetadataLog(metadata)
        #: By connection: the node that follows the log with it, and how far it is.
        self._at: dict[Connection, tuple[int, int]] = {}
        #: Connections of nodes that are starting and serve no clients yet.
        self._beginning: dict[Connection, int] = {}
        #: By node: the offset through which it has nothing left of removed topics.
        self._clean: dict[int, int] = {}
        self._moved = trio.Event()
        #: The other nodes of this broker, and a function that says whether one runs.
        self.others: Sequence[int] = ()
        self.is_running: Callable[[int], bool] = bool
        #: Names the newest snapshot of the metadata log. May raise OSError.
        self.newest_snapshot: Callable[[], SnapshotId | None] = lambda: None

    def fetched(self, connection: Connection, request: FetchRequest) -> None:
        """Note a fetch: the node has applied everything before its offset."""
        node, epoch = request.replica_state.replica_id, request.replica_state.replica_epoch
        for topic in request.topics:
            for part in topic.partitions:
                if epoch == BEGINS:
                    self._beginning[connection] = node
                else:
                    self._beginning.pop(connection, None)
                    self._at[connection] = node, part.fetch_offset
        self._tell()

    def begin_with(self, request: FetchRequest) -> FetchResponse | None:
        """The answer to a node that is starting and has read nothing: the snapshot to read first, as KRaft's leaders do
        (KIP-630). None if there is no snapshot, or for any other fetch.
        """
        asked = [
            (topic.topic_id, part.partition, part.fetch_offset) for topic in request.topics for part in topic.partitions
        ]
        if request.replica_state.replica_epoch != BEGINS or asked != [(METADATA_TOPIC_ID, 0, 0)]:
            return None
        try:
            newest = self.newest_snapshot()
        except OSError as error:
            self._log.error("metadata.snapshot.unreadable", reason=error)
            return None
        if newest is None:
            return None
        part = PartitionData(0, snapshot_id=SnapshotIdOnWire(*newest), records=b"")
        return FetchResponse(responses=[FetchableTopicResponse(topic_id=METADATA_TOPIC_ID, partitions=[part])])

    def cleaned(self, node: int, offset: int) -> None:
        """Note that a node has nothing left of topics that were removed before an offset."""
        self._clean[node] = offset

    @property
    def are_clean(self) -> bool:
        """Whether no other node has anything left of removed topics."""
        last = self._metadata.last_removal
        return all(self._clean.get(node, -1) >= last for node in self.others)

    def left(self, connection: Connection) -> None:
        """Note that a connection has ended."""
        if connection in self._at or connection in self._beginning:
            self._beginning.pop(connection, None)
            self._at.pop(connection, None)
            self._tell()

    def _tell(self) -> None:
        self._moved.set()
        self._moved = trio.Event()

    @property
    def nodes(self) -> dict[int, int]:
        """How far each node that follows the log has applied it: the offset of the next record."""
        return dict(self._at.values())

    def _behind(self, offset: int) -> list[int]:
        """The nodes for which a change up to this offset waits."""
        at, begins = self.nodes, set(self._beginning.values())
        return [
            node
            for node in self.others
            if at.get(node, -1) < offset and (node in at or (node not in begins and self.is_running(node)))
        ]

    @property
    def log_end_offset(self) -> int:
        """The end offset of the metadata log."""
        return self._metadata.log.log_end_offset

    async def have_applied(self) -> None:
        """Wait until every other running node has applied the present log, or is starting."""
        offset = self._metadata.log.high_watermark
        began = trio.current_time()
        told = False
        while behind := self._behind(offset):
            moved = self._moved
            with trio.move_on_after(_LOOK_SECONDS):  # there is no event for the end of a node that did not follow
                await moved.wait()
            if not told and trio.current_time() - began > _TELL_SECONDS:
                told = True
                self._log.warning("metadata.behind", nodes=",".join(map(str, behind)), effect="a change waits for them")

    async def moved_on(self, condition: Callable[[], bool]) -> None:
        """Wait until a condition holds. It is checked when a node begins to follow, applies something, or goes."""
        while not condition():
            await self._moved.wait()

    async def have_let_go(self) -> None:
        """Wait as `have_applied` does, and also for starting nodes, which may have read the state before."""
        await self.have_applied()
        await self.moved_on(lambda: not self._beginning)
        await self.have_applied()

    def serve(self, api: Api, handle: Callable[[Context, Any], Answer]) -> Callable[[Context, Any], Answer]:
        """Wrap a handler so that its answers are sent when all nodes have applied its changes."""
        if api.name not in OWNERS and api.name not in _ALSO_CHANGE:
            return handle

        def served(context: Context, request: Any) -> Answer:
            before = self._metadata.log.log_end_offset
            answer = handle(context, request)
            return _After(answer, self, before) if self.others and isinstance(answer, Coroutine) else answer

        return served


class _After:
    """The answer of a coroutine handler, after all nodes have applied its changes."""

    def __init__(self, answer: Coroutine[Any, Any, Any], followers: Followers, before: int) -> None:
        """`before` is the end offset of the metadata log when the handler was called."""
        self._answer, self._followers, self._before = answer, followers, before

    def __await__(self) -> Generator[Any, Any, Any]:
        return self._run().__await__()

    async def _run(self) -> Any:
        found = await self._answer
        if self._followers.log_end_offset > self._before:
            await self._followers.have_applied()
        return found

    def close(self) -> None:
        """Close the coroutine if it will not be awaited."""
        self._answer.close()


#: APIs that may change the metadata, besides those that only the owner carries out.
_ALSO_CHANGE = frozenset(("Metadata", "FindCoordinator"))
