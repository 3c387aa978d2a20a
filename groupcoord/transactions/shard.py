"""The partitions of `__transaction_state` that are coordinated here, and the transactional ids in each.

A state is written first and takes effect when it is durable. Only one write of an id runs at a time: other changes
meanwhile get CONCURRENT_TRANSACTIONS, or wait until the id is settled (`when_settled`).
"""

from __future__ import annotations

from collections.abc import Callable

from barnabas.groupcoord.deadlines import Deadline, Deadlines
from barnabas.groupcoord.log.owned import OwnedShard, OwnedShards
from barnabas.groupcoord.log.store import Store
from barnabas.groupcoord.outbox import Outbox
from barnabas.groupcoord.shares import Shares
from barnabas.groupcoord.transactions.records import transaction_record
from barnabas.groupcoord.transactions.state import NO_EPOCH, State, Status
from barnabas.wire.aliases import TopicPartition
from barnabas.wire.errors import ErrorCode, KafkaError

Done = Callable[[ErrorCode], None]
# The memory of an id, and of a partition of its transaction, besides the bytes of the id: measured, rounded up.
ID_BYTES = 1_500
PARTITION_BYTES = 200
#: The client of ids that were read from the log and not used since.
NOBODY = ""
# The most requests that may wait for one id to settle.
_MOST_WAITING = 16


class Transaction:
    """One transactional id: its durable state, and the change in progress."""

    __slots__ = ("client", "deadline", "id", "is_busy", "left", "on_settled", "state", "weight")

    def __init__(self, transactional_id: str, state: State, client: str) -> None:
        self.id = transactional_id
        self.state = state
        #: The client whose memory share it takes: the last that began with it; NOBODY after the log was read.
        self.client = client
        #: A record of it is being written, or a producer id for it is awaited.
        self.is_busy = False
        #: The partitions of a decided transaction that do not have their marker yet.
        self.left: set[TopicPartition] = set()
        self.on_settled: list[Callable[[], None]] = []
        #: Expires when its transaction has taken too long.
        self.deadline: Deadline | None = None
        self.weight = 0

    @property
    def is_settled(self) -> bool:
        """Whether nothing is in progress, so that the next step may begin."""
        return not self.is_busy and not self.state.status.is_prepared


class TransactionShard(OwnedShard):
    """One partition of `__transaction_state`."""

    def __init__(self, partition: int, coordinator_epoch: int) -> None:
        super().__init__(partition)
        self.coordinator_epoch = coordinator_epoch
        self.transactions: dict[str, Transaction] = {}


class TransactionShards(OwnedShards[TransactionShard]):
    """All shards of a coordinator: the partition of each id, the log of each partition, and their memory."""

    def __init__(
        self,
        partition_of: Callable[[str], int],
        store: Store,
        outbox: Outbox,
        deadlines: Deadlines,
        wall_ms: Callable[[], int],
        most_bytes: int,
    ) -> None:
        super().__init__(partition_of)
        self._store = store
        self._outbox = outbox
        self._deadlines = deadlines
        self._wall_ms = wall_ms
        self._shares = Shares(most_bytes)
        #: Called when a transaction has taken longer than its producer's timeout.
        self.on_timed_out: Callable[[TransactionShard, Transaction], None] = lambda shard, transaction: None

    @property
    def used_bytes(self) -> int:
        return self._shares.used

    # --- looking ------------------------------------------------------------------------------------------------------

    def find(self, transactional_id: str) -> tuple[TransactionShard, Transaction]:
        """Find an id. Raises KafkaError INVALID_PRODUCER_ID_MAPPING if no producer has it, and like `of`."""
        if not transactional_id:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "no transactional id")
        shard = self.of(transactional_id)
        transaction = shard.transactions.get(transactional_id)
        if transaction is None:
            raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING, "no producer has this transactional id")
        return shard, transaction

    # --- changing -----------------------------------------------------------------------------------------------------

    def check_room(self, client: str, size: int) -> None:
        """Raises KafkaError POLICY_VIOLATION if a client would take more of the memory than it leaves free."""
        shares = self._shares
        if size > (shares.free if client == NOBODY else shares.spare(client)):
            told = f"{client} has {shares.of(client)} bytes, and {shares.free} are free for all transactions"
            raise KafkaError(ErrorCode.POLICY_VIOLATION, told)

    def begins_with(self, transaction: Transaction, client: str) -> None:
        """A client begins with a known id: from now on the id counts as this client's."""
        self._shares.take(transaction.client, -transaction.weight)
        transaction.client = client
        self._shares.take(client, transaction.weight)

    def add(self, shard: TransactionShard, transactional_id: str, state: State, client: str = NOBODY) -> Transaction:
        transaction = shard.transactions[transactional_id] = Transaction(transactional_id, state, client)
        self._changed(shard, transaction)
        return transaction

    def remove(self, shard: TransactionShard, transaction: Transaction) -> None:
        """Forget an id; requests that wait for it wake up and find it gone."""
        del shard.transactions[transaction.id]
        self._shares.take(transaction.client, -transaction.weight)
        if transaction.deadline is not None:
            transaction.deadline.drop()
            transaction.deadline = None
        self._settled(transaction)

    def write(self, shard: TransactionShard, transaction: Transaction, state: State | None, done: Done) -> None:
        """Write the next state (None: forget the id). It is in force when `done` is called without an error."""
        transaction.is_busy = True

        def durable(error: ErrorCode) -> None:
            with self._outbox:
                transaction.is_busy = False
                if not self.has(shard):
                    done(ErrorCode.NOT_LEADER_OR_FOLLOWER)
                    return
                if not error and state is not None:
                    transaction.state = state
                    self._changed(shard, transaction)
                gone = state is None if not error else transaction.state.producer_epoch == NO_EPOCH
                if gone:
                    self.remove(shard, transaction)
                done(error)
                if transaction.is_settled:
                    self._settled(transaction)

        self._store.append(shard.partition, [transaction_record(transaction.id, state)], durable)

    def give_up(self, transaction: Transaction) -> None:
        """Give up the change in progress."""
        transaction.is_busy = False
        if transaction.is_settled:
            self._settled(transaction)

    def when_settled(self, transaction: Transaction, seconds: float, again: Callable[[], None]) -> bool:
        """Call `again` once, when nothing is in progress or `seconds` have passed; False if too many wait already."""
        if len(transaction.on_settled) >= _MOST_WAITING or seconds <= 0:
            return False

        def late() -> None:
            transaction.on_settled.remove(settled)
            again()

        def settled() -> None:
            deadline.drop()
            again()

        deadline = self._deadlines.at(self._deadlines.clock() + seconds, late)
        transaction.on_settled.append(settled)
        return True

    def _settled(self, transaction: Transaction) -> None:
        waiting, transaction.on_settled = transaction.on_settled, []
        for each in waiting:
            each()

    def _changed(self, shard: TransactionShard, transaction: Transaction) -> None:
        state = transaction.state
        weight = ID_BYTES + len(transaction.id) + PARTITION_BYTES * len(state.partitions)
        self._shares.take(transaction.client, weight - transaction.weight)
        transaction.weight = weight
        if state.status is Status.ONGOING:
            if transaction.deadline is None:
                transaction.deadline = self._deadlines.new(lambda: self.on_timed_out(shard, transaction))
            left_ms = state.start_ms + state.timeout_ms - self._wall_ms()
            transaction.deadline.set(self._deadlines.clock() + max(left_ms, 0) / 1000)
        elif transaction.deadline is not None:
            transaction.deadline.drop()
            transaction.deadline = None
