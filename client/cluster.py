"""A cluster's brokers: which one leads a partition or coordinates a group, and a connection to each that is in use.

Leaders are cached, and looked up again when a broker says that it is not the leader or a connection is lost. After a
lost connection, a repeatable request is sent again until the client's patience ends; any other raises UnknownFateError.
This works with any Kafka broker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from barnabas.client.connection import Address, Connection, connect, parse_servers
from barnabas.client.errors import ClientError, LostError, NoLeaderError, RefusedError, check
from barnabas.client.retry import PATIENCE_SECONDS, Timing, again
from barnabas.client.security import Security
from barnabas.wire.aliases import TopicPartition
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from barnabas.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from barnabas.wire.types import Message

R = TypeVar("R", bound=Message)
T = TypeVar("T")

_FIND_BY_KEY = 3  # the last version for a single coordinator
_CREATE_SECONDS = 15.0
#: Kinds of coordinators.
GROUP, TRANSACTION = 0, 1
_KINDS = ("group", "transactional id")
#: Errors of a broker that does not lead a partition any more, or not yet: another one may, or this one soon.
MOVED = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
    }
)


class Cluster:
    """The brokers behind bootstrap addresses. `patience`: for how many seconds repeatable requests are retried."""

    def __init__(
        self,
        servers: str,
        *,
        patience: float = PATIENCE_SECONDS,
        timing: Timing | None = None,
        security: Security | None = None,
    ) -> None:
        """`security` defaults to that of the process. Raises ClientError at once if none of the servers answers."""
        self.controller_id = -1
        self._servers = parse_servers(servers)
        self._patience = patience
        self._timing = timing or Timing()
        self._addresses: dict[int, Address] = {}
        self._is_stale = False  # whether the addresses may be outdated
        self._connections: dict[int, Connection] = {}
        self._leaders: dict[str, dict[int, int]] = {}
        self._coordinators: dict[tuple[int, str], int] = {}
        self._security = security
        self._any = connect(self._servers, security)

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections."""
        for connection in (self._any, *self._connections.values()):
            connection.close()

    # --- asking -------------------------------------------------------------------------------------------------------

    def any(self, request: Message, response: type[R], **options: Any) -> R:
        """Ask any broker. The options are those of `Connection.ask`."""
        return self.ask(self._any_broker, request, response, **options)

    def controller(self, request: Message, response: type[R], **options: Any) -> R:
        """Ask the broker that handles changes of topics."""
        return self.ask(self.find_controller, request, response, **options)

    def ask(self, route: Callable[[], Connection], request: Message, response: type[R], **options: Any) -> R:
        """Ask the broker that `route` finds; repeat after a lost connection if that is harmless. Raises ClientError."""
        return self.again(lambda: route().ask(request, response, **options))

    def again(self, attempt: Callable[[], T]) -> T:
        """Return the result of `attempt`, which may look for its broker again in each try."""
        return again(self._forgetting(attempt), self._patience, self._timing)

    @contextmanager
    def without_patience(self) -> Iterator[None]:
        """Inside this context, everything is tried only once."""
        before, self._patience = self._patience, 0
        try:
            yield
        finally:
            self._patience = before

    def _forgetting(self, attempt: Callable[[], T]) -> Callable[[], T]:
        def attempted() -> T:
            try:
                return attempt()
            except LostError:
                self._forget()
                raise

        return attempted

    def _forget(self) -> None:
        """A connection was lost: brokers may have gone, or moved to other addresses."""
        self._leaders.clear()
        self._coordinators.clear()
        self._is_stale = True
        self.controller_id = -1

    # --- brokers ------------------------------------------------------------------------------------------------------

    def broker(self, node_id: int) -> Connection:
        """The connection to a broker. Raises NoLeaderError if the cluster does not know it."""
        known = self._connections.get(node_id)
        if known is not None and known.is_usable():
            return known
        if self._is_stale or node_id not in self._addresses:
            self._ask_metadata([])
        if node_id not in self._addresses:
            raise NoLeaderError(f"There is no leader or coordinator now (broker {node_id})")
        made = self._connections[node_id] = Connection(self._addresses[node_id], self._security)
        return made

    def node_ids(self) -> list[int]:
        """The current brokers."""
        self.metadata([])
        return sorted(self._addresses)

    def coordinator(self, group: str) -> Connection:
        """The connection to the broker that coordinates a group. Raises ClientError if there is none."""
        return self.again(lambda: self.find_coordinator(group))

    def find_coordinator(self, group: str, kind: int = GROUP) -> Connection:
        """Like `coordinator`, in one attempt, as the route of a request. With `kind` also for a transactional id."""
        if (kind, group) not in self._coordinators:
            request = FindCoordinatorRequest(key=group, key_type=kind)
            found = self._any_broker().ask(request, FindCoordinatorResponse, version=_FIND_BY_KEY)
            check(found.error_code, f"Coordinator of {_KINDS[kind]} {group}", found.error_message)
            self._coordinators[kind, group] = found.node_id
        return self.broker(self._coordinators[kind, group])

    def forget_coordinator(self, group: str, kind: int = GROUP) -> None:
        """The coordinator has moved: look for it again the next time."""
        self._coordinators.pop((kind, group), None)

    def _any_broker(self) -> Connection:
        if not self._any.is_usable():
            self._any = self._connect_to_any()
        return self._any

    def _connect_to_any(self) -> Connection:
        """Connect to one of the bootstrap servers, or else to a broker that the cluster has named."""
        try:
            return connect(self._servers, self._security)
        except ClientError:
            others = [address for address in self._addresses.values() if address not in self._servers]
            try:
                return connect(others, self._security)
            except ClientError:
                pass
            raise

    def find_controller(self) -> Connection:
        """The connection to the broker that handles changes of topics, in one attempt."""
        if self.controller_id < 0:
            self._ask_metadata([])
        return self.broker(self.controller_id)

    # --- topics -------------------------------------------------------------------------------------------------------

    def metadata(self, topics: Iterable[str] | None, *, create: bool = False) -> list[MetadataResponseTopic]:
        """Topics with their current partitions and leaders; None asks for all."""
        names = None if topics is None else list(topics)
        return self.again(lambda: self._ask_metadata(names, create=create))

    def leaders(self, topic: str, *, create: bool = False) -> dict[int, int]:
        """The broker id of each partition's leader, as far as it is known.

        With `create`, a missing topic is created and waited for. Raises ClientError if there is no topic.
        """
        if topic not in self._leaders:
            if create:
                again(self._forgetting(lambda: self._find_leaders(topic, create=True)), _CREATE_SECONDS, self._timing)
            else:
                self.again(lambda: self._find_leaders(topic))
        return self._leaders[topic]

    def forget_leaders(self, topic: str) -> None:
        """The leaders have moved: ask again the next time."""
        self._leaders.pop(topic, None)

    def by_leader(self, keys: Iterable[TopicPartition], what: str) -> dict[int, dict[str, list[int]]]:
        """Partitions by their leader and topic. `what` names the request in an error.

        Makes one attempt. Raises ClientError for a partition that does not exist or has no leader.
        """
        found: dict[int, dict[str, list[int]]] = {}
        for topic, partition in keys:
            leader = self._leader(topic, partition, what)
            found.setdefault(leader, {}).setdefault(topic, []).append(partition)
        return found

    def _leader(self, topic: str, partition: int, what: str) -> int:
        if partition not in self._leaders.get(topic, {}):
            self._find_leaders(topic, what=f"{what} {topic}-{partition}")
        leader = self._leaders[topic].get(partition)
        if leader is None:
            name = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.name
            raise ClientError(f"{what} {topic}-{partition}: {name}")
        if leader < 0:
            self.forget_leaders(topic)
            raise NoLeaderError(f"{what} {topic}-{partition}: there is no leader now")
        return leader

    def _find_leaders(self, topic: str, *, create: bool = False, what: str | None = None) -> None:
        """Makes one attempt. A missing topic is waited for only while it is being created."""
        found = next((told for told in self._ask_metadata([topic], create=create) if told.name == topic), None)
        if found is None:
            raise ClientError(f"{what or f'Topic {topic}'}: the broker's answer does not have it")
        try:
            check(found.error_code, what or f"Topic {topic}")
        except RefusedError as refused:
            if refused.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and not create:
                refused.may_repeat = False
            raise
        partitions = sorted(found.partitions, key=lambda p: p.partition_index)
        self._leaders[topic] = {p.partition_index: p.leader_id for p in partitions}

    def _ask_metadata(self, topics: list[str] | None, *, create: bool = False) -> list[MetadataResponseTopic]:
        """Makes one attempt."""
        asked = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
        request = MetadataRequest(topics=asked, allow_auto_topic_creation=create)
        answer = self._any_broker().ask(request, MetadataResponse)
        self._addresses = {b.node_id: Address(b.host, b.port) for b in answer.brokers}
        self._is_stale = False
        self.controller_id = answer.controller_id
        return answer.topics
