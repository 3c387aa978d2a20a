"""InitProducerId with a transactional id: a new producer takes over, and the previous one is fenced.

A new producer gets a higher epoch. If the previous producer has a transaction open, that is aborted first, and the new
one gets CONCURRENT_TRANSACTIONS until that is done. A producer that sends its id and epoch (KIP-360) is fenced if they
are outdated. A repeated request gets the same answer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

from barnabas.groupcoord.log.store import told
from barnabas.groupcoord.outbox import Outbox
from barnabas.groupcoord.transactions.completion import Completion
from barnabas.groupcoord.transactions.config import TransactionConfig
from barnabas.groupcoord.transactions.shard import ID_BYTES, NOBODY, Transaction, TransactionShard, TransactionShards
from barnabas.groupcoord.transactions.state import State, Status, fenced, new_state
from barnabas.wire.errors import ErrorCode, KafkaError
from barnabas.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

_FENCED_SINCE = 4  # PRODUCER_FENCED; before, INVALID_PRODUCER_EPOCH


class NewProducerId(Protocol):
    """The source of producer ids. Each id is given once."""

    def __call__(self, given: Callable[[int | KafkaError], None]) -> None:
        """Call `given` once, with an id or the error; perhaps before this returns."""


class Asked(NamedTuple):
    """What one request asks for. A producer without an id and epoch has none expected."""

    transactional_id: str
    timeout_ms: int
    expected: tuple[int, int] | None

    @property
    def expected_epoch(self) -> int | None:
        return None if self.expected is None else self.expected[1]


class Producers:
    """Gives transactional producers their ids and epochs."""

    def __init__(
        self,
        config: TransactionConfig,
        shards: TransactionShards,
        completion: Completion,
        new_producer_id: NewProducerId,
        outbox: Outbox,
        wall_ms: Callable[[], int],
    ) -> None:
        self._config = config
        self._shards = shards
        self._completion = completion
        self._new_producer_id = new_producer_id
        self._outbox = outbox
        self._wall_ms = wall_ms

    def init(
        self,
        request: InitProducerIdRequest,
        *,
        version: int,
        client: str = NOBODY,
        reply: Callable[[InitProducerIdResponse], None],
    ) -> None:
        """InitProducerId. The reply is called when the epoch is durable; the id counts towards the client's share."""

        def answer(error: ErrorCode, state: State | None = None) -> None:
            code = told(error)
            if code == ErrorCode.PRODUCER_FENCED and version < _FENCED_SINCE:
                code = ErrorCode.INVALID_PRODUCER_EPOCH
            if state is None:
                response = InitProducerIdResponse(error_code=code, producer_epoch=-1)
            else:
                response = InitProducerIdResponse(producer_id=state.producer_id, producer_epoch=state.producer_epoch)
            self._outbox.put(reply, response)

        with self._outbox:
            try:
                self._begin(request, client, answer)
            except KafkaError as refusal:
                answer(refusal.code)

    def _begin(self, request: InitProducerIdRequest, client: str, answer: Callable[..., None]) -> None:
        if not request.transactional_id or (request.producer_id < 0) != (request.producer_epoch < 0):
            raise KafkaError(ErrorCode.INVALID_REQUEST, "an id without an epoch, or no transactional id")
        if not 0 < request.transaction_timeout_ms <= self._config.transaction_max_timeout_ms:
            most = self._config.transaction_max_timeout_ms
            raise KafkaError(
                ErrorCode.INVALID_TRANSACTION_TIMEOUT, f"a transaction timeout is above 0, and at most {most} ms"
            )
        expected = None if request.producer_id < 0 else (request.producer_id, request.producer_epoch)
        asked = Asked(request.transactional_id, request.transaction_timeout_ms, expected)
        shard = self._shards.of(asked.transactional_id)
        transaction = shard.transactions.get(asked.transactional_id)
        if transaction is not None:
            self._shards.begins_with(transaction, client)
            self._decide(shard, transaction, asked, answer)
            return
        size = ID_BYTES + len(asked.transactional_id)
        self._shards.check_room(client, size)

        def given(producer_id: int) -> None:
            found = shard.transactions.get(asked.transactional_id)
            if found is None:  # else another request was quicker
                self._shards.check_room(client, size)
                state = new_state(producer_id, asked.timeout_ms, self._wall_ms())
                found = self._shards.add(shard, asked.transactional_id, state, client)
            self._decide(shard, found, asked, answer)

        self._with_new_id(shard, given, answer)

    def _with_new_id(
        self, shard: TransactionShard, then: Callable[[int], None], answer: Callable[[ErrorCode], None]
    ) -> None:
        """Continue with the new producer id, or refuse the request."""

        def given(producer_id: int | KafkaError) -> None:
            with self._outbox:
                try:
                    if isinstance(producer_id, KafkaError):
                        raise producer_id
                    if not self._shards.has(shard):
                        raise KafkaError(ErrorCode.NOT_COORDINATOR)
                    then(producer_id)
                except KafkaError as refusal:
                    answer(refusal.code)

        self._new_producer_id(given)

    def _decide(
        self, shard: TransactionShard, transaction: Transaction, asked: Asked, answer: Callable[..., None]
    ) -> None:
        state = transaction.state
        if transaction.is_busy:
            raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
        if asked.expected is not None and not state.knows(*asked.expected):
            raise fenced(state, asked.expected[1])
        if state.status.is_prepared:
            raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
        if state.status is Status.ONGOING:
            if asked.expected is not None and asked.expected != (state.producer_id, state.producer_epoch):
                raise fenced(state, asked.expected[1])
            self._completion.abort(shard, transaction, lambda error: answer(error or ErrorCode.CONCURRENT_TRANSACTIONS))
        elif state.is_exhausted and asked.expected_epoch in (None, state.producer_epoch):
            self._rotate(shard, transaction, asked, answer)
        else:
            self._write(
                shard,
                transaction,
                state.initialized(asked.expected_epoch, asked.timeout_ms, self._wall_ms()),
                answer,
            )

    def _rotate(
        self, shard: TransactionShard, transaction: Transaction, asked: Asked, answer: Callable[..., None]
    ) -> None:
        """Change to the next producer id, because the epochs of this one are used up."""
        transaction.is_busy = True

        def given(producer_id: int) -> None:
            transaction.is_busy = False
            state = transaction.state.rotated(producer_id, asked.expected_epoch, asked.timeout_ms, self._wall_ms())
            self._write(shard, transaction, state, answer)

        def refused(error: ErrorCode) -> None:
            self._shards.give_up(transaction)
            answer(error)

        self._with_new_id(shard, given, refused)

    def _write(
        self, shard: TransactionShard, transaction: Transaction, state: State, answer: Callable[..., None]
    ) -> None:
        self._shards.write(shard, transaction, state, lambda error: answer(error, None if error else state))
