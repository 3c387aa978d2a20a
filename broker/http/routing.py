"""Finds the nodes that have the data a visitor asks for, so that the page of any node shows all nodes.

    by partition     Fetch, ListOffsets, Produce               the leaders
    by group or id   groups, their offsets, transactions       their coordinators
    lists            groups, transactions, log directories     every node

A request is split into one for each node, and the answers are joined. With a single node, nothing is split.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from barnabas.broker.between.peers import Peers
from barnabas.broker.coordinators.groups import Groups
from barnabas.broker.coordinators.transactions import Transactions
from barnabas.broker.metadata.image import MetadataImage
from barnabas.broker.partitions import Partitions
from barnabas.wire.errors import KafkaError
from barnabas.wire.internal_topics import OFFSETS_TOPIC
from barnabas.wire.messages.delete_groups import DeleteGroupsRequest
from barnabas.wire.messages.describe_groups import DescribeGroupsRequest
from barnabas.wire.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResult
from barnabas.wire.messages.describe_transactions import DescribeTransactionsRequest
from barnabas.wire.messages.fetch import FetchRequest
from barnabas.wire.messages.list_groups import ListGroupsRequest
from barnabas.wire.messages.list_offsets import ListOffsetsRequest
from barnabas.wire.messages.list_transactions import ListTransactionsRequest
from barnabas.wire.messages.offset_commit import OffsetCommitRequest
from barnabas.wire.messages.offset_fetch import OffsetFetchRequest
from barnabas.wire.messages.produce import ProduceRequest
from barnabas.wire.types import Message, replace

#: The longest wait of a fetch from other nodes. It waits on this node: there are few connections to a node, and changes
#: of the metadata need them too.
SHARED_WAIT_MS = 250


class ByPartition(NamedTuple):
    """The fields of a request with its topics and partitions, and the answer's field with the topics."""

    topics: str
    name: str
    partitions: str
    part: str
    answers: str


class ByKey(NamedTuple):
    """The field of a request with groups or transactional ids, and the answer's field with them."""

    keys: str
    key: Callable[[Any], str]
    answers: str


_BY_PARTITION: Mapping[type[Message], ByPartition] = {
    FetchRequest: ByPartition("topics", "topic", "partitions", "partition", "responses"),
    ListOffsetsRequest: ByPartition("topics", "name", "partitions", "partition_index", "topics"),
    ProduceRequest: ByPartition("topic_data", "name", "partition_data", "index", "responses"),
}
_BY_GROUP: Mapping[type[Message], ByKey] = {
    DescribeGroupsRequest: ByKey("groups", str, "groups"),
    DeleteGroupsRequest: ByKey("groups_names", str, "results"),
    OffsetFetchRequest: ByKey("groups", lambda each: str(each.group_id), "groups"),
}
_BY_TRANSACTION: Mapping[type[Message], ByKey] = {
    DescribeTransactionsRequest: ByKey("transactional_ids", str, "transaction_states"),
}
#: Requests about data that each node has its own of, and the answer's field with it.
_OF_ALL: Mapping[type[Message], str] = {
    ListGroupsRequest: "groups",
    ListTransactionsRequest: "transaction_states",
    DescribeLogDirsRequest: "results",
}


class Routing:
    """Splits the requests of one node."""

    def __init__(
        self, metadata: MetadataImage, partitions: Partitions, groups: Groups, transactions: Transactions
    ) -> None:
        self._metadata, self._partitions, self._groups, self._transactions = metadata, partitions, groups, transactions
        #: The other nodes; None if there are none.
        self.peers: Peers | None = None

    @property
    def here(self) -> int:
        """The id of this node."""
        return self._metadata.node_id

    def split(self, request: Message) -> dict[int, Message]:
        """The request for each node that has to be asked."""
        kind = type(request)
        if self.peers is None:
            return {self.here: request}
        if kind in _OF_ALL:
            return dict.fromkeys(sorted({self.here, *self._metadata.nodes}), request)
        if isinstance(request, OffsetCommitRequest):
            return {self._of_group(request.group_id): request}
        if kind in _BY_PARTITION:
            found = self._by_leader(request, _BY_PARTITION[kind])
        elif kind in _BY_GROUP:
            found = _by_key(request, _BY_GROUP[kind], self._of_group)
        elif kind in _BY_TRANSACTION:
            found = _by_key(request, _BY_TRANSACTION[kind], self._of_transaction)
        else:
            found = {}
        if isinstance(request, FetchRequest) and found.keys() - {self.here}:
            here = min(request.max_wait_ms, SHARED_WAIT_MS)
            found = {node: replace(each, max_wait_ms=here if node == self.here else 0) for node, each in found.items()}
        return found or {self.here: request}

    def _by_leader(self, request: Message, where: ByPartition) -> dict[int, Message]:
        topics: dict[int, list[Any]] = {}
        for topic in getattr(request, where.topics):
            parts: dict[int, list[Any]] = {}
            for part in getattr(topic, where.partitions):
                node = self._partitions.elsewhere(getattr(topic, where.name), getattr(part, where.part))
                parts.setdefault(self.here if node is None else node, []).append(part)
            for node, those in parts.items():
                topics.setdefault(node, []).append(replace(topic, **{where.partitions: those}))
        return {node: replace(request, **{where.topics: those}) for node, those in topics.items()}

    def _of_group(self, group: str) -> int:
        try:
            node = self._partitions.elsewhere(OFFSETS_TOPIC, self._groups.partition_of(group))
        except KafkaError:  # there are no groups yet
            node = None
        return self.here if node is None else node

    def _of_transaction(self, transactional_id: str) -> int:
        elsewhere = self._transactions.elsewhere
        node = None if elsewhere is None else elsewhere.node_of(transactional_id)
        return self.here if node is None else node


def _by_key(request: Message, where: ByKey, node_of: Callable[[str], int]) -> dict[int, Message]:
    keys: dict[int, list[Any]] = {}
    for each in getattr(request, where.keys):
        keys.setdefault(node_of(where.key(each)), []).append(each)
    return {node: replace(request, **{where.keys: those}) for node, those in keys.items()}


def joined(request: Message, answers: Sequence[Message]) -> Message:
    """The answers of several nodes as one. It has an error if one of them has."""
    if len(answers) == 1:
        return answers[0]
    kind = type(request)
    by_key = {**_BY_GROUP, **_BY_TRANSACTION}
    if kind in _BY_PARTITION:
        where = _BY_PARTITION[kind].answers
    else:
        where = by_key[kind].answers if kind in by_key else _OF_ALL[kind]
    found = [each for answer in answers for each in getattr(answer, where)]
    failed = next((answer for answer in answers if getattr(answer, "error_code", 0)), answers[0])
    return replace(failed, **{where: _by_path(found) if isinstance(request, DescribeLogDirsRequest) else found})


def _by_path(found: Sequence[DescribeLogDirsResult]) -> list[DescribeLogDirsResult]:
    """Nodes on one machine share a directory, and each reports the partitions that it leads: join them."""
    dirs: dict[str, DescribeLogDirsResult] = {}
    for each in found:
        known = dirs.get(each.log_dir)
        dirs[each.log_dir] = each if known is None else replace(known, topics=[*known.topics, *each.topics])
    return list(dirs.values())
