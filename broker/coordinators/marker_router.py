"""Sends transaction markers to the nodes that lead the partitions, as WriteTxnMarkers requests.

    write -> wait for the node -> ask it, together with other markers -> done

A node gets one request at a time, so the markers that arrive meanwhile go into one request. The leader of a partition
is looked up when its marker is written, and again before it is sent. If a marker fails, the caller is told, and the
completion of the transaction writes it again. A node that is down is tried again at least each half second, so its
markers are written soon after it is back.

- Only this node's own image says whether a partition was deleted. A node that lags behind, or has just started, may
  answer for any partition that it does not exist.
- An answer counts for the topic that existed when the marker was sent. If a topic of the same name was created
  meanwhile, it may have records of the transaction, so the marker is written there too (decision 66).
- A marker is not sent if its transaction no longer waits for it: the producer may have begun the next transaction.

Source: Kafka's TransactionMarkerChannelManager.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

from barnabas.broker.between.channels import reached
from barnabas.broker.between.peers import Peers, Unreachable
from barnabas.broker.partitions import Partitions
from barnabas.broker.workers import Workers
from barnabas.groupcoord.transactions.state import V1, V2
from barnabas.wire.aliases import TopicPartition
from barnabas.wire.batch import Marker
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

log = logging.getLogger(__name__)

# The most markers in one request. They take at most about 30 KB, because a topic's name has at most 249 characters.
MOST_MARKERS = 100


class Waiting(NamedTuple):
    """A marker that waits to be sent."""

    where: TopicPartition
    marker: Marker
    new_epoch: bool
    topic_id: bytes | None
    done: Callable[[ErrorCode], None]
    wanted: Callable[[], bool]


class MarkerRouter:
    """Sends markers to the nodes that lead their partitions."""

    def __init__(self, peers: Peers, partitions: Partitions, workers: Workers) -> None:
        self._peers, self._partitions, self._workers = peers, partitions, workers
        self._waiting: dict[int, deque[Waiting]] = {}

    def write(
        self,
        node: int,
        where: TopicPartition,
        marker: Marker,
        done: Callable[[ErrorCode], None],
        *,
        new_epoch: bool,
        wanted: Callable[[], bool],
    ) -> None:
        """See `Markers`; `node` leads the partition."""
        waiting = self._waiting.get(node)
        if waiting is None:
            waiting = self._waiting[node] = deque()
            self._workers.start(self._send, node, waiting)
        waiting.append(Waiting(where, marker, new_epoch, self._partitions.topic_id(where[0]), done, wanted))

    async def _send(self, node: int, waiting: deque[Waiting]) -> None:
        """Send markers to a node until none waits for it."""
        while waiting:
            await reached(partial(self._send_some, node, waiting), partial(self._tell_away, node, waiting))
        del self._waiting[node]

    async def _send_some(self, node: int, waiting: deque[Waiting]) -> None:
        """Send one request, if there is anything to send. Raises Unreachable; then all that was in it waits again."""
        sent = list(self._next(node, waiting))
        if not sent:
            return
        request = _request(sent)
        try:
            answer: WriteTxnMarkersResponse = await self._peers.ask(node, request)
        except Unreachable:
            waiting.extendleft(reversed(sent))
            raise
        codes = _codes(request, answer)
        for each in sent:
            self._answered(each, codes.get((each.marker, each.new_epoch, each.where)))

    def _tell_away(self, node: int, waiting: deque[Waiting], error: Unreachable) -> None:
        log.warning("node %d is away: %d markers of transactions wait for it: %s", node, len(waiting), error)

    def _next(self, node: int, waiting: deque[Waiting]) -> Iterator[Waiting]:
        """The next markers to send to a node. The others, whose partition it no longer leads, are answered."""
        for _ in range(min(MOST_MARKERS, len(waiting))):
            each = waiting.popleft()
            if not each.wanted():
                continue
            if self._partitions.elsewhere(*each.where) == node:
                yield each._replace(topic_id=self._partitions.topic_id(each.where[0]))
            else:
                self._answered(each, ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def _answered(self, each: Waiting, code: ErrorCode | None) -> None:
        """Report the result of a marker; `code` is None if the answer has none."""
        if not self._partitions.exists(*each.where):
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        elif code is None:
            code = ErrorCode.NETWORK_EXCEPTION
        elif code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION or each.topic_id != self._partitions.topic_id(each.where[0]):
            code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        each.done(code)


def _request(sent: list[Waiting]) -> WriteTxnMarkersRequest:
    """A request with each marker once, for all its partitions."""
    by_marker: dict[tuple[Marker, bool], dict[str, list[int]]] = {}
    for each in sent:
        topic, index = each.where
        by_marker.setdefault((each.marker, each.new_epoch), {}).setdefault(topic, []).append(index)
    return WriteTxnMarkersRequest(
        [
            WritableTxnMarker(
                producer_id=marker.producer_id,
                producer_epoch=marker.producer_epoch,
                transaction_result=marker.committed,
                topics=[WritableTxnMarkerTopic(name, indexes) for name, indexes in places.items()],
                coordinator_epoch=marker.coordinator_epoch,
                transaction_version=V2 if new_epoch else V1,
            )
            for (marker, new_epoch), places in by_marker.items()
        ]
    )


def _codes(
    request: WriteTxnMarkersRequest, answer: WriteTxnMarkersResponse
) -> dict[tuple[Marker, bool, TopicPartition], ErrorCode]:
    """The error code for each marker in each partition. The results in an answer have the order of the request."""
    found: dict[tuple[Marker, bool, TopicPartition], ErrorCode] = {}
    for asked, result in zip(request.markers, answer.markers, strict=False):
        if asked.producer_id != result.producer_id:
            break
        marker = Marker(asked.producer_id, asked.producer_epoch, asked.transaction_result, asked.coordinator_epoch)
        for topic in result.topics:
            for part in topic.partitions:
                where = topic.name, part.partition_index
                found[marker, asked.transaction_version >= V2, where] = ErrorCode(part.error_code)
    return found
