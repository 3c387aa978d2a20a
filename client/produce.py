"""Sends batches to the leaders of their partitions (Produce).

A batch that a broker refuses because it is no longer the leader was not written, and goes to the new leader. If a
connection is lost before the answer, UnknownFateError is raised.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from barnabas.client.cluster import MOVED, Cluster
from barnabas.client.connection import Connection, Posted
from barnabas.client.errors import ClientError, LostError, RefusedError, UnknownFateError, check
from barnabas.wire.aliases import TopicPartition
from barnabas.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

_BY_NAME = 12  # the last version with topic names


class Batch(NamedTuple):
    """One batch for one partition."""

    topic: str
    partition: int
    data: bytes


class Sent(NamedTuple):
    """A request to one leader that is still unanswered."""

    connection: Connection
    posted: Posted
    keys: list[TopicPartition]


def produce(
    cluster: Cluster,
    batches: Sequence[Batch],
    *,
    acks: int = -1,
    timeout_ms: int = 30_000,
    transactional_id: str | None = None,
) -> dict[TopicPartition, PartitionProduceResponse]:
    """Send at most one batch per partition. Returns each partition's answer, even if refused. Raises ClientError."""
    results: dict[TopicPartition, PartitionProduceResponse] = {}
    left = list(batches)

    def attempt() -> None:
        nonlocal left
        told = answers(_post(cluster, left, acks, timeout_ms, transactional_id))
        results.update(told)
        left = [batch for batch in left if told[batch.topic, batch.partition].error_code in MOVED]
        for batch in left:
            cluster.forget_leaders(batch.topic)
        for batch in left:
            check(told[batch.topic, batch.partition].error_code, f"Produce to {batch.topic}-{batch.partition}")

    try:
        cluster.again(attempt)
    except RefusedError:
        if not results:
            raise
    return results


def post(
    cluster: Cluster,
    batches: Sequence[Batch],
    *,
    acks: int = -1,
    timeout_ms: int = 30_000,
    transactional_id: str | None = None,
) -> list[Sent]:
    """Send batches, with one request to each leader. The answers are read later. Raises ClientError."""
    return cluster.again(lambda: _post(cluster, batches, acks, timeout_ms, transactional_id))


def answers(sent: Sequence[Sent]) -> dict[TopicPartition, PartitionProduceResponse]:
    """The answer for each posted partition, including refusals. Raises ClientError."""
    found: dict[TopicPartition, PartitionProduceResponse] = {}
    for connection, posted, keys in sent:
        response = connection.answer(posted, ProduceResponse)
        told = {(topic.name, part.index): part for topic in response.responses for part in topic.partition_responses}
        for topic, partition in keys:
            if (topic, partition) not in told:
                raise ClientError(f"Produce to {topic}-{partition}: the broker's answer does not have it")
            found[topic, partition] = told[topic, partition]
    return found


def _post(
    cluster: Cluster, batches: Sequence[Batch], acks: int, timeout_ms: int, transactional_id: str | None
) -> list[Sent]:
    """Make one attempt. If it raises LostError, nothing was sent, so it may be repeated."""
    data = {(batch.topic, batch.partition): batch.data for batch in batches}
    sent: list[Sent] = []
    for leader, topics in cluster.by_leader(data, "Produce to").items():
        request = ProduceRequest(
            transactional_id=transactional_id,
            acks=acks,
            timeout_ms=timeout_ms,
            topic_data=[
                TopicProduceData(
                    name=topic, partition_data=[PartitionProduceData(p, data[topic, p]) for p in partitions]
                )
                for topic, partitions in topics.items()
            ],
        )
        keys = [(topic, partition) for topic, partitions in topics.items() for partition in partitions]
        try:
            connection = cluster.broker(leader)
            posted = connection.post(request, last_version=_BY_NAME, wait=timeout_ms / 1000)
        except LostError as lost:
            if not sent:
                raise
            raise UnknownFateError(f"{lost}; other brokers were sent their part of Produce before") from None
        sent.append(Sent(connection, posted, keys))
    return sent
