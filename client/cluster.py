"""The brokers of a cluster: which one leads a partition or coordinates a group, and a connection to each in use.

What is known of leaders is kept, and asked anew when a broker says that it is not the leader, or a connection is lost.
A request that may be repeated is asked again after a lost connection, until the client's patience ends; one that may
not raises UnknownFateError. It works against any Kafka broker.
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

_FIND_BY_KEY = 3  # the last version that asks for one coordinator
_CREATE_SECONDS = 15.0
#: What a coordinator is for.
GROUP, TRANSACTION = 0, 1
_KINDS = ("group", "transactional id")
#: What a broker says that leads a partition no longer, or not yet: another one may, or this one soon.
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
    """The brokers behind bootstrap addresses. `patience`: seconds for which what may be repeated is tried."""

    def __init__(
        self,
        servers: str,
        *,
        patience: float = PATIENCE_SECONDS,
        timing: Timing | None = None,
        security: Security | None = None,
    ) -> None:
        """`security` is that of the process, if it is not given. Raises ClientError at once if none of the servers
        answers."""
        self.controller_id = -1
        self._servers = parse_servers(servers)
        self._patience = patience
        self._timing = timing or Timing()
        self._addresses: dict[int, Address] = {}
        self._is_stale = False  # the addresses: brokers may be elsewhere now
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
        """End all connections."""
        for connection in (self._any, *self._connections.values()):
            connection.close()

    # --- asking -------------------------------------------------------------------------------------------------------

    def any(self, request: Message, response: type[R], **options: Any) -> R:
        """Ask any broker. Options are those of `Connection.ask`."""
        return self.ask(self._any_broker, request, response, **options)

    def controller(self, request: Message, response: type[R], **options: Any) -> R:
        """Ask the broker that answers for changes of topics."""
        return self.ask(self.find_controller, request, response, **options)

    def ask(self, route: Callable[[], Connection], request: Message, response: type[R], **options: Any) -> R:
        """Ask the broker that `route` finds, again after a lost connection if that does no harm. Raises ClientError."""
        return self.again(lambda: route().ask(request, response, **options))

    def again(self, attempt: Callable[[], T]) -> T:
        """What `attempt` gives, which may find its broker anew each time it is tried."""
        return again(self._forgetting(attempt), self._patience, self._timing)

    @contextmanager
    def without_patience(self) -> Iterator[None]:
        """Inside, everything is tried once."""
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
        """A connection was lost: brokers may have gone, or come back elsewhere."""
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
        """The brokers that there are now."""
        self.metadata([])
        return sorted(self._addresses)

    def coordinator(self, group: str) -> Connection:
        """The connection to the broker that coordinates a group. Raises ClientError if there is none."""
        return self.again(lambda: self.find_coordinator(group))

    def find_coordinator(self, group: str, kind: int = GROUP) -> Connection:
        """The same in one attempt, as the route of a request; also for a transactional id, by `kind`."""
        if (kind, group) not in self._coordinators:
            request = FindCoordinatorRequest(key=group, key_type=kind)
            found = self._any_broker().ask(request, FindCoordinatorResponse, version=_FIND_BY_KEY)
            check(found.error_code, f"Coordinator of {_KINDS[kind]} {group}", found.error_message)
            self._coordinators[kind, group] = found.node_id
        return self.broker(self._coordinators[kind, group])

    def forget_coordinator(self, group: str, kind: int = GROUP) -> None:
        """It has moved: look for it the next time."""
        self._coordinators.pop((kind, group), None)

    def _any_broker(self) -> Connection:
        if not self._any.is_usable():
            self._any = self._connect_to_any()
        return self._any

    def _connect_to_any(self) -> Connection:
        """To one of the servers, or else to a broker that was told of."""
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
        """The connection to the broker that answers for changes of topics, in one attempt."""
        if self.controller_id < 0:
            self._ask_metadata([])
        return self.broker(self.controller_id)

    # --- topics -------------------------------------------------------------------------------------------------------

    def metadata(self, topics: Iterable[str] | None, *, create: bool = False) -> list[MetadataResponseTopic]:
        """Topics with partitions and leaders as they are now; None asks for all."""
        names = None if topics is None else list(topics)
        return self.again(lambda: self._ask_metadata(names, create=create))

    def leaders(self, topic: str, *, create: bool = False) -> dict[int, int]:
        """The leader's broker id of each partition, as far as is known.

        With `create` a topic that is not there is made, and waited for. ClientError if there is none.
        """
        if topic not in self._leaders:
            if create:
                again(self._forgetting(lambda: self._find_leaders(topic, create=True)), _CREATE_SECONDS, self._timing)
            else:
                self.again(lambda: self._find_leaders(topic))
        return self._leaders[topic]

    def forget_leaders(self, topic: str) -> None:
        """They have moved: ask the next time."""
        self._leaders.pop(topic, None)

    def by_leader(self, keys: Iterable[TopicPartition], what: str) -> dict[int, dict[str, list[int]]]:
        """Partitions by their leader and topic. `what` is being asked for: it stands in the error.

        One attempt; raises ClientError for a partition that is not there or has no leader.
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
        """One attempt. A topic that is not there is not waited for, unless it is being made."""
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
        """One attempt."""
        asked = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
        request = MetadataRequest(topics=asked, allow_auto_topic_creation=create)
        answer = self._any_broker().ask(request, MetadataResponse)
        self._addresses = {b.node_id: Address(b.host, b.port) for b in answer.brokers}
        self._is_stale = False
        self.controller_id = answer.controller_id
        return answer.topics
