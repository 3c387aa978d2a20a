"""Complete a transaction: write the outcome, then a marker into every partition, then that all markers are written.

    PrepareCommit, PrepareAbort is durable -> a marker is durable in each partition -> CompleteCommit, CompleteAbort

The client is answered after the first step: nothing can change the outcome from there on. A marker that fails is tried
again for as long as its partition exists: at least each second if its leader is away or has changed, and up to 30 s
later if a disk fails. After a restart all markers of a decided transaction are written again; where a marker exists,
that changes nothing.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from functools import partial

from barnabas.groupcoord.deadlines import Deadlines
from barnabas.groupcoord.outbox import Outbox
from barnabas.groupcoord.transactions.markers import Markers
from barnabas.groupcoord.transactions.shard import Done, Transaction, TransactionShard, TransactionShards
from barnabas.groupcoord.transactions.state import V2, State, Status
from barnabas.wire.aliases import TopicPartition
from barnabas.wire.batch import Marker
from barnabas.wire.errors import ErrorCode

log = logging.getLogger(__name__)

# The number of markers written before other tasks have their turn.
_AT_ONCE = 50
FIRST_RETRY_SECONDS, LAST_RETRY_SECONDS = 0.1, 30.0
# Errors that pass when a leader is back or has changed. The producer's next transaction waits for at most this pause.
_PASSING = (ErrorCode.NETWORK_EXCEPTION, ErrorCode.NOT_LEADER_OR_FOLLOWER)
LAST_RETRY_OF_PASSING_SECONDS = 1.0

Waiting = tuple[TransactionShard, Transaction, State, TopicPartition, float]


class Completion:
    """Ends transactions."""

    def __init__(
        self,
        shards: TransactionShards,
        markers: Markers,
        deadlines: Deadlines,
        outbox: Outbox,
        wall_ms: Callable[[], int],
    ) -> None:
        self._shards = shards
        shards.on_timed_out = self.timed_out
        self._markers = markers
        self._deadlines = deadlines
        self._outbox = outbox
        self._wall_ms = wall_ms
        self._queue: deque[Waiting] = deque()
        self._pump_again = deadlines.new(self._pump)

    def decide(self, shard: TransactionShard, transaction: Transaction, prepared: State, done: Done) -> None:
        """Write the outcome; `done` is called when it is durable or has failed."""

        def decided(error: ErrorCode) -> None:
            done(error)
            if not error:
                self.go_on(shard, transaction)

        self._shards.write(shard, transaction, prepared, decided)

    def abort(self, shard: TransactionShard, transaction: Transaction, done: Done) -> None:
        """Abort an ongoing transaction under a higher epoch, so that its producer is fenced."""
        self.decide(shard, transaction, transaction.state.fenced(self._wall_ms()), done)

    def timed_out(self, shard: TransactionShard, transaction: Transaction) -> None:
        """Abort a transaction that has taken longer than its producer's timeout."""
        if not self._shards.has(shard) or transaction.state.status is not Status.ONGOING:
            return
        state, deadline = transaction.state, transaction.deadline
        assert deadline is not None
        deadline.set(self._deadlines.clock() + 1.0)  # in case it does not end now
        if transaction.is_busy:
            return

        def told(error: ErrorCode) -> None:
            outcome = "will be tried again" if error else "done"
            log.info(
                "transactional id %r: aborting the transaction of producer %d, which took longer than %d ms: %s",
                transaction.id[:300],
                state.producer_id,
                state.timeout_ms,
                outcome,
            )

        self.abort(shard, transaction, told)

    def go_on(self, shard: TransactionShard, transaction: Transaction) -> None:
        """Write the markers of a decided transaction into all its partitions."""
        state = transaction.state
        transaction.left = set(state.partitions)
        if not transaction.left:
            self._complete(shard, transaction, state, FIRST_RETRY_SECONDS)
            return
        self._queue.extend((shard, transaction, state, where, FIRST_RETRY_SECONDS) for where in state.partitions)
        if self._pump_again.at > self._deadlines.clock():
            self._pump()

    def _pump(self) -> None:
        """Write some of the waiting markers; the rest after other tasks have had their turn."""
        with self._outbox:
            for _ in range(min(_AT_ONCE, len(self._queue))):
                if not self._queue:
                    break
                self._write(*self._queue.popleft())
            if self._queue:
                self._pump_again.set(self._deadlines.clock())

    def _is_open(self, shard: TransactionShard, transaction: Transaction, state: State) -> bool:
        return self._shards.has(shard) and transaction.state is state

    def _write(
        self, shard: TransactionShard, transaction: Transaction, state: State, where: TopicPartition, wait: float
    ) -> None:
        if not self._is_open(shard, transaction, state):
            return

        def written(error: ErrorCode) -> None:
            with self._outbox:
                if not self._is_open(shard, transaction, state):
                    return
                if error and error != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    # A node that is away, or a move that waits, has one log line for all its markers.
                    passing = error in _PASSING
                    level = logging.DEBUG if passing else logging.WARNING
                    log.log(
                        level,
                        "transactional id %r: no marker in %s-%d yet: %s",
                        transaction.id[:300],
                        *where,
                        error.name,
                    )
                    most = LAST_RETRY_OF_PASSING_SECONDS if passing else LAST_RETRY_SECONDS
                    self._later(wait, most, lambda again: self._queue_again((shard, transaction, state, where, again)))
                    return
                transaction.left.discard(where)
                if not transaction.left:
                    self._complete(shard, transaction, state, FIRST_RETRY_SECONDS)

        marker = Marker(state.producer_id, state.producer_epoch, state.status.is_commit, shard.coordinator_epoch)
        self._markers.write(
            where,
            marker,
            written,
            new_epoch=state.client_version >= V2,
            wanted=lambda: self._is_open(shard, transaction, state),
        )

    def _queue_again(self, waiting: Waiting) -> None:
        self._queue.append(waiting)
        self._pump()

    def _complete(self, shard: TransactionShard, transaction: Transaction, state: State, wait: float) -> None:
        if not self._is_open(shard, transaction, state):
            return

        def completed(error: ErrorCode) -> None:
            if error and self._shards.has(shard):
                again = partial(self._complete, shard, transaction, state)
                self._later(wait, LAST_RETRY_SECONDS, again)

        self._shards.write(shard, transaction, state.completed(self._wall_ms()), completed)

    def _later(self, wait: float, most: float, call: Callable[[float], None]) -> None:
        """Call `call` after `wait` seconds, or `most`, with the time to wait if it fails again."""
        wait = min(wait, most)
        self._deadlines.at(self._deadlines.clock() + wait, lambda: call(min(wait * 2, LAST_RETRY_SECONDS)))
