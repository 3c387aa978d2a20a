"""Finds what holds up a partition's readers: DescribeProducers, ListTransactions, DescribeTransactions (KIP-664)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from barnabas.client.cluster import Cluster
from barnabas.client.errors import ClientError
from barnabas.wire.aliases import TopicPartition
from barnabas.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    TopicRequest,
)
from barnabas.wire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)
from barnabas.wire.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse


class OpenTransaction(NamedTuple):
    """A partition's oldest open transaction, with its coordinator's information if a coordinator knows it."""

    partition: int
    start_offset: int
    producer_id: int
    last_timestamp: int
    known: TransactionState | None


def open_transactions(cluster: Cluster, keys: Iterable[TopicPartition]) -> list[OpenTransaction]:
    """For each partition, the transaction that holds up its readers; none if the brokers cannot tell."""
    found: list[OpenTransaction] = []
    for leader, topics in cluster.by_leader(dict.fromkeys(keys), "producers of").items():
        request = DescribeProducersRequest([TopicRequest(topic, indexes) for topic, indexes in topics.items()])
        try:
            answer = cluster.broker(leader).ask(request, DescribeProducersResponse)
        except ClientError:
            continue  # an older broker, which does not know the request
        for topic in answer.topics:
            for part in topic.partitions:
                held = [each for each in part.active_producers if each.current_txn_start_offset >= 0]
                if held:
                    first = min(held, key=lambda each: each.current_txn_start_offset)
                    known = _known(cluster, first.producer_id, (topic.name, part.partition_index))
                    start = first.current_txn_start_offset
                    found.append(
                        OpenTransaction(part.partition_index, start, first.producer_id, first.last_timestamp, known)
                    )
    return sorted(found)


def _known(cluster: Cluster, producer_id: int, where: TopicPartition) -> TransactionState | None:
    """The coordinator's information on the transaction that a producer has open in a partition."""
    for node in cluster.node_ids():
        listed = cluster.broker(node).ask(
            ListTransactionsRequest(producer_id_filters=[producer_id]), ListTransactionsResponse
        )
        names = [each.transactional_id for each in listed.transaction_states]
        if not names:
            continue
        described = cluster.broker(node).ask(DescribeTransactionsRequest(names), DescribeTransactionsResponse)
        for state in described.transaction_states:
            if any(topic.topic == where[0] and where[1] in topic.partitions for topic in state.topics):
                return state
    return None
