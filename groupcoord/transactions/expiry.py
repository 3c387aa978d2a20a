"""Forget ids that no producer has used for `transactional.id.expiration.ms`, and their epochs."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

from barnabas.groupcoord.deadlines import Deadlines
from barnabas.groupcoord.outbox import Outbox
from barnabas.groupcoord.transactions.config import TransactionConfig
from barnabas.groupcoord.transactions.shard import Transaction, TransactionShard, TransactionShards
from barnabas.groupcoord.transactions.state import Status
from barnabas.wire.errors import ErrorCode

log = logging.getLogger(__name__)

# The number of ids checked, and of ids forgotten, before other tasks have their turn.
_LOOKED_AT_ONCE, _FORGOTTEN_AT_ONCE = 5_000, 100


class Expiry:
    """Checks all ids every transaction.remove.expired.transaction.cleanup.interval.ms, some at a time."""

    def __init__(
        self,
        config: TransactionConfig,
        shards: TransactionShards,
        deadlines: Deadlines,
        outbox: Outbox,
        wall_ms: Callable[[], int],
    ) -> None:
        self._interval = config.transaction_remove_expired_transaction_cleanup_interval_ms / 1000
        self._expiration_ms = config.transactional_id_expiration_ms
        self._shards = shards
        self._deadlines = deadlines
        self._outbox = outbox
        self._wall_ms = wall_ms
        self._round: Iterator[tuple[TransactionShard, Transaction]] | None = None
        self._deadline = deadlines.new(self._look)
        self._deadline.set(deadlines.clock() + self._interval)

    def _look(self) -> None:
        if self._round is None:
            self._round = self._all()
        looked_at = forgotten = 0
        is_over = True
        with self._outbox:
            for shard, transaction in self._round:
                looked_at += 1
                if self._is_old(transaction) and self._shards.has(shard):
                    self._shards.write(shard, transaction, None, _ignore)
                    forgotten += 1
                if looked_at == _LOOKED_AT_ONCE or forgotten == _FORGOTTEN_AT_ONCE:
                    is_over = False
                    break
        if forgotten:
            log.info("%d transactional ids have expired", forgotten)
        if is_over:
            self._round = None
        self._deadline.set(self._deadlines.clock() + (self._interval if is_over else 0))

    def _all(self) -> Iterator[tuple[TransactionShard, Transaction]]:
        for shard in list(self._shards.by_partition.values()):
            for transaction in list(shard.transactions.values()):
                yield shard, transaction

    def _is_old(self, transaction: Transaction) -> bool:
        state = transaction.state
        return (
            transaction.is_settled
            and state.status is not Status.ONGOING
            and self._wall_ms() - state.update_ms >= self._expiration_ms
        )


def _ignore(error: ErrorCode) -> None:
    """Ignore a failure: the next round tries again."""
