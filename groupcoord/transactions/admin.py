"""The requests of operators: DescribeTransactions, ListTransactions (KIP-664, KIP-994, KIP-1152).

Both give their answer piece by piece, so that the caller can let other tasks run in between.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from barnabas.groupcoord.transactions.shard import Transaction, TransactionShards
from barnabas.groupcoord.transactions.state import Status
from barnabas.wire.errors import ErrorCode, KafkaError
from barnabas.wire.messages.describe_transactions import TopicData
from barnabas.wire.messages.describe_transactions import TransactionState as Described
from barnabas.wire.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from barnabas.wire.messages.list_transactions import TransactionState as Listed
from barnabas.wire.patterns import Pattern, PatternError, pattern

_STATES = {status.told: status for status in Status}


class TransactionAdmin:
    """Answers from the coordinator's state; changes nothing."""

    def __init__(self, shards: TransactionShards, wall_ms: Callable[[], int]) -> None:
        self._shards = shards
        self._wall_ms = wall_ms

    def describe(self, transactional_ids: Sequence[str]) -> Iterator[Described]:
        """DescribeTransactions: the state of each id."""
        for transactional_id in transactional_ids:
            try:
                _, transaction = self._shards.find(transactional_id)
            except KafkaError as refusal:
                unknown = refusal.code == ErrorCode.INVALID_PRODUCER_ID_MAPPING
                code = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND if unknown else refusal.code
                yield Described(error_code=code, transactional_id=transactional_id)
                continue
            state = transaction.state
            by_topic: dict[str, list[int]] = {}
            for topic, index in sorted(state.partitions):
                by_topic.setdefault(topic, []).append(index)
            yield Described(
                transactional_id=transactional_id,
                transaction_state=state.status.told,
                transaction_timeout_ms=state.timeout_ms,
                transaction_start_time_ms=state.start_ms,
                producer_id=state.producer_id,
                producer_epoch=state.producer_epoch,
                topics=[TopicData(topic, indexes) for topic, indexes in by_topic.items()],
            )

    def list(self, request: ListTransactionsRequest) -> Iterator[ListTransactionsResponse]:
        """ListTransactions: yields the same answer after each id; it is complete at the end."""
        if any(not shard.is_loaded for shard in self._shards.by_partition.values()):
            yield ListTransactionsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
            return
        wanted: Pattern | None = None
        if request.transactional_id_pattern:
            try:
                wanted = pattern(request.transactional_id_pattern)
            except PatternError:
                yield ListTransactionsResponse(error_code=ErrorCode.INVALID_REGULAR_EXPRESSION)
                return
        states = {_STATES[name] for name in request.state_filters if name in _STATES}
        producers = set(request.producer_id_filters)
        now_ms = self._wall_ms()
        answer = ListTransactionsResponse(
            unknown_state_filters=[name for name in request.state_filters if name not in _STATES],
            transaction_states=[],
        )
        everything = [each for shard in self._shards.by_partition.values() for each in shard.transactions.values()]
        for transaction in everything:
            state = transaction.state
            if (
                (not request.state_filters or state.status in states)
                and (not producers or state.producer_id in producers)
                and (request.duration_filter < 0 or now_ms - state.start_ms > request.duration_filter)
                and (wanted is None or wanted.matches(transaction.id))
            ):
                answer.transaction_states.append(_listed(transaction))
            yield answer
        yield answer


def _listed(transaction: Transaction) -> Listed:
    state = transaction.state
    return Listed(transaction.id, state.producer_id, state.status.told)
