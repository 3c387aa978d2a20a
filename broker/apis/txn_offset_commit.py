"""TxnOffsetCommit (28), versions 0-5: a group's offsets, which count when the producer's transaction is committed.

Versions 0-1: all fields; a loading coordinator is reported as not available (KAFKA-7296).
Version 2: the leader epoch of the last record (KIP-320).
Version 3: generation, member and group.instance.id are checked (KIP-447); flexible.
Version 4: TRANSACTION_ABORTABLE; before, INVALID_TXN_STATE (KIP-890).
Version 5: the offsets are added to the transaction here, without AddOffsetsToTxn (KIP-890).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from barnabas.broker.coordinators.groups import Groups
from barnabas.broker.coordinators.refused import RepliedWith, split
from barnabas.broker.coordinators.transactions import Transactions, told_to_writer
from barnabas.broker.coordinators.verifying import Codes, CoordinatorsElsewhere, Question, Verifying
from barnabas.broker.jobs.queries import Queries
from barnabas.broker.net.delayed_response import DelayedResponse
from barnabas.broker.net.order import GROUPS, METADATA, OFFSETS, TRANSACTIONS
from barnabas.broker.partitions import Partitions
from barnabas.broker.registry import Context, api
from barnabas.broker.security.operations import READ_GROUP, READ_TOPIC, WRITE_TRANSACTIONAL_ID
from barnabas.groupcoord.log.store import told
from barnabas.groupcoord.transactions.state import V2
from barnabas.wire.aliases import TopicPartition
from barnabas.wire.errors import ErrorCode, KafkaError
from barnabas.wire.internal_topics import OFFSETS_TOPIC
from barnabas.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from barnabas.wire.queries.writer import WRITER_ID
from barnabas.wire.streams.keys import is_stream
from barnabas.wire.types import replace

ADDS_SINCE = 5
ABORTABLE_SINCE = 4


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of a broker that a commit in a transaction uses."""

    groups: Groups
    transactions: Transactions
    queries: Queries
    partitions: Partitions


@api(
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    uses=METADATA | GROUPS | TRANSACTIONS,
    changes=OFFSETS | TRANSACTIONS,
)
def handle(
    context: Context, request: TxnOffsetCommitRequest, parts: Parts
) -> TxnOffsetCommitResponse | DelayedResponse:
    version = context.version
    by_driver = request.transactional_id.startswith(WRITER_ID)
    try:
        known = parts.queries.secret.named(request.transactional_id)
        if by_driver != is_stream(request.group_id):
            raise KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED)
        if not by_driver:
            context.check(WRITE_TRANSACTIONAL_ID, known)
            context.check(READ_GROUP, request.group_id)
    except KafkaError as error:
        return TxnOffsetCommitResponse(topics=_refused(request.topics, error.code))
    allowed, denied = split(request.topics, lambda topic: by_driver or context.may(READ_TOPIC, topic.name))
    refused = _refused(denied, READ_TOPIC.refusal)
    if refused and not allowed:
        return TxnOffsetCommitResponse(topics=refused)
    request = replace(request, transactional_id=known, topics=allowed)
    reply = RepliedWith(refused, applied=False)

    def commit(error: ErrorCode) -> None:
        code = told_to_writer(error, knows_abortable=version >= ABORTABLE_SINCE, adds=version >= ADDS_SINCE)
        parts.groups.coordinator.commit_in_transaction(request, version=version, refusal=told(code), reply=reply)
        reply.apply()

    where = (OFFSETS_TOPIC, parts.groups.coordinator.partition_of(request.group_id))
    producer = (request.transactional_id, request.producer_id, request.producer_epoch)
    elsewhere, adds = parts.transactions.elsewhere, version >= ADDS_SINCE
    if not adds and not parts.transactions.verifies:
        commit(ErrorCode.NONE)
    elif elsewhere is not None and elsewhere.node_of(request.transactional_id) is not None:
        _ask(context, elsewhere, parts.partitions, Verifying(*producer, adds=adds), where, _size(request), commit)
    elif adds:
        parts.transactions.coordinator.add(*producer, frozenset((where,)), V2, commit)
    else:
        try:
            parts.transactions.coordinator.verify(*producer, where)
            commit(ErrorCode.NONE)
        except KafkaError as refusal:
            commit(refusal.code)
    return reply.now_or_later()  # type: ignore[return-value]


def _ask(
    context: Context,
    elsewhere: CoordinatorsElsewhere,
    partitions: Partitions,
    verifying: Verifying,
    where: TopicPartition,
    size: int,
    commit: Callable[[ErrorCode], None],
) -> None:
    """Commit once the coordinator on another node confirms that the group's partition is in the transaction."""
    vnode = partitions.get(*where)
    if vnode is None:  # then the group is not coordinated here either, which shows later
        commit(ErrorCode.NONE)
        return

    def answered(codes: Codes) -> None:
        code = codes.get(where, ErrorCode.NONE)
        try:
            if not code:
                if partitions.gone(vnode) is not None:
                    raise KafkaError(ErrorCode.NOT_COORDINATOR)
                verifying.check(vnode, verifying.producer_id, verifying.epoch)
        except KafkaError as refusal:
            code = refusal.code
        commit(code)
        verifying.end()

    try:
        verifying.want(vnode)
    except KafkaError as refusal:
        commit(refusal.code)
        return
    if verifying.places:
        elsewhere.ask(Question(verifying, context.client, size, answered))
    else:
        answered({})


def _size(request: TxnOffsetCommitRequest) -> int:
    """About the bytes that a waiting request takes."""
    texts = sum(len(part.committed_metadata or "") for topic in request.topics for part in topic.partitions)
    return texts + 200 * sum(len(topic.partitions) + 1 for topic in request.topics)


def _refused(topics: list[TxnOffsetCommitRequestTopic], code: ErrorCode) -> list[TxnOffsetCommitResponseTopic]:
    return [
        TxnOffsetCommitResponseTopic(
            t.name, [TxnOffsetCommitResponsePartition(p.partition_index, code) for p in t.partitions]
        )
        for t in topics
    ]
