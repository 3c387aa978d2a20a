"""The state of one transactional id, and the steps from one state to the next. Values only: no time, no log.

             add partitions        EndTxn, time-out, fencing         markers written
    Empty ----------------> Ongoing -----------------> PrepareCommit ---------------> CompleteCommit
                                   \\----------------> PrepareAbort  ---------------> CompleteAbort

A Complete state allows the next transaction just as Empty does. Kafka has two more states: Dead, while the tombstone of
an expired id is written, and PrepareEpochFence, while PrepareAbort is written for a fenced producer. Both last only as
long as a write and are never in the log; here they appear as a write in progress.

Version 1 of transactions (KIP-98) keeps a producer's epoch from one transaction to the next. Version 2 (KIP-890) raises
it with each transaction: the marker has the new epoch, so late batches with the old one are recognised. A producer
whose epochs are used up gets a new id when its transaction is complete.

Source: KIP-98, KIP-360, KIP-890.
"""

from __future__ import annotations

from enum import IntEnum

import msgspec

from barnabas.wire.aliases import TopicPartition
from barnabas.wire.errors import ErrorCode, KafkaError

NO_ID = -1
NO_EPOCH = -1
MAX_EPOCH = 2**15 - 1
#: The transaction versions that clients use: V2 has a new epoch for each transaction, V1 does not.
V1, V2 = 0, 2


class Status(IntEnum):
    """The states as numbered in the log."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def told(self) -> str:
        """The name in DescribeTransactions and ListTransactions."""
        return "".join(word.capitalize() for word in self.name.split("_"))

    @property
    def is_prepared(self) -> bool:
        """Whether the outcome is decided, and not all markers are written."""
        return self in (Status.PREPARE_COMMIT, Status.PREPARE_ABORT)

    @property
    def is_commit(self) -> bool:
        return self in (Status.PREPARE_COMMIT, Status.COMPLETE_COMMIT)


class State(msgspec.Struct, frozen=True, kw_only=True):
    """The latest state of an id in the log; `last_epoch` is known only to the broker that made the last step."""

    producer_id: int
    producer_epoch: int
    #: The epoch before this one, by which a repeated request is recognised.
    last_epoch: int = NO_EPOCH
    previous_producer_id: int = NO_ID
    #: The producer's id after the transaction, if its epochs are used up.
    next_producer_id: int = NO_ID
    timeout_ms: int
    status: Status
    partitions: frozenset[TopicPartition] = frozenset()
    start_ms: int = -1
    update_ms: int
    client_version: int = V1

    @property
    def is_exhausted(self) -> bool:
        """Whether no producer can get a higher epoch; the one above this is reserved for fencing."""
        return self.producer_epoch >= MAX_EPOCH - 1

    # --- producers ----------------------------------------------------------------------------------------------------

    def knows(self, producer_id: int, epoch: int) -> bool:
        """Whether this may be the current producer, or the one before its epochs were used up."""
        if self.producer_epoch == NO_EPOCH or producer_id == self.producer_id:
            return True
        return producer_id == self.previous_producer_id and epoch >= MAX_EPOCH - 1

    def initialized(self, expected_epoch: int | None, timeout_ms: int, now_ms: int) -> State:
        """The producer starts again under a higher epoch; a repeated request finds that done.

        Raises KafkaError PRODUCER_FENCED if the producer's epoch is outdated.
        """
        epoch, last = self.producer_epoch + 1, NO_EPOCH
        if expected_epoch is not None:
            if self.producer_epoch in (NO_EPOCH, expected_epoch):
                last = self.producer_epoch
            elif expected_epoch == self.last_epoch:
                epoch, last = self.producer_epoch, self.last_epoch
            else:
                raise fenced(self, expected_epoch)
        return self._emptied(self.producer_id, epoch, last, timeout_ms, now_ms)

    def rotated(self, producer_id: int, expected_epoch: int | None, timeout_ms: int, now_ms: int) -> State:
        """The producer starts again under another id, as its epochs are used up."""
        last = NO_EPOCH if expected_epoch is None else self.producer_epoch
        state = self._emptied(producer_id, 0, last, timeout_ms, now_ms)
        return msgspec.structs.replace(state, previous_producer_id=self.producer_id)

    def _emptied(self, producer_id: int, epoch: int, last: int, timeout_ms: int, now_ms: int) -> State:
        return msgspec.structs.replace(
            self,
            producer_id=producer_id,
            producer_epoch=epoch,
            last_epoch=last,
            timeout_ms=timeout_ms,
            status=Status.EMPTY,
            partitions=frozenset(),
            start_ms=-1,
            update_ms=now_ms,
        )

    # --- transactions -------------------------------------------------------------------------------------------------

    def added(self, partitions: frozenset[TopicPartition], version: int, now_ms: int) -> State:
        """The state with more partitions; the first ones begin the transaction."""
        begins = self.status is not Status.ONGOING
        return msgspec.structs.replace(
            self,
            status=Status.ONGOING,
            partitions=partitions if begins else self.partitions | partitions,
            start_ms=now_ms if begins else self.start_ms,
            update_ms=now_ms,
            client_version=version,
        )

    def prepared(self, *, committed: bool, version: int, now_ms: int, next_producer_id: int = NO_ID) -> State:
        """The state with a decided outcome. In version 2 the epoch is a new one from here on."""
        has_partitions = self.status is Status.ONGOING
        return msgspec.structs.replace(
            self,
            producer_epoch=self.producer_epoch + 1 if version >= V2 else self.producer_epoch,
            last_epoch=self.producer_epoch if version >= V2 else self.last_epoch,
            next_producer_id=next_producer_id,
            status=Status.PREPARE_COMMIT if committed else Status.PREPARE_ABORT,
            partitions=self.partitions if has_partitions else frozenset(),
            start_ms=self.start_ms if has_partitions else now_ms,
            update_ms=now_ms,
            client_version=version,
        )

    def fenced(self, now_ms: int) -> State:
        """The state for an abort without its producer: under a higher epoch, which no producer has."""
        return msgspec.structs.replace(
            self,
            producer_epoch=self.producer_epoch + 1,
            last_epoch=NO_EPOCH,
            status=Status.PREPARE_ABORT,
            update_ms=now_ms,
        )

    def completed(self, now_ms: int) -> State:
        """The state when all markers are written."""
        state = msgspec.structs.replace(
            self,
            status=Status.COMPLETE_COMMIT if self.status.is_commit else Status.COMPLETE_ABORT,
            partitions=frozenset(),
            next_producer_id=NO_ID,
            update_ms=now_ms,
        )
        if self.next_producer_id == NO_ID:
            return state
        return msgspec.structs.replace(
            state, producer_id=self.next_producer_id, producer_epoch=0, previous_producer_id=self.producer_id
        )

    # --- requests to end ----------------------------------------------------------------------------------------------

    def repeats_end(self, producer_id: int, epoch: int) -> bool:
        """Whether a request to end a transaction in version 2 is a repeated one: the first has raised the epoch.

        A producer that was fenced at the last epoch cannot continue, because there is no higher one.
        """
        if producer_id == self.producer_id and self.producer_epoch == epoch + 1:
            return self.producer_epoch < MAX_EPOCH
        is_new_id = producer_id == self.previous_producer_id and self.producer_epoch == 0
        return is_new_id and epoch == MAX_EPOCH - 1

    def has_ended(self, committed: bool) -> bool:
        """Whether the last transaction is complete with this outcome."""
        return self.status is (Status.COMPLETE_COMMIT if committed else Status.COMPLETE_ABORT)


def new_state(producer_id: int, timeout_ms: int, now_ms: int) -> State:
    """The state of a new id: its first producer gets epoch 0."""
    return State(
        producer_id=producer_id,
        producer_epoch=NO_EPOCH,
        timeout_ms=timeout_ms,
        status=Status.EMPTY,
        update_ms=now_ms,
    )


def fenced(state: State, epoch: int) -> KafkaError:
    """The error for a producer whose epoch is not the current one."""
    return KafkaError(
        ErrorCode.PRODUCER_FENCED, f"producer {state.producer_id} has epoch {state.producer_epoch}, not {epoch}"
    )
