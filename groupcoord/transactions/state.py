"""The state of one transactional id, and the steps from one state to the next. Values only: no time, no log.

             add partitions        EndTxn, time-out, fencing         markers written
    Empty ----------------> Ongoing -----------------> PrepareCommit ---------------> CompleteCommit
                                   \\----------------> PrepareAbort  ---------------> CompleteAbort

A Complete state is as good as Empty for the next transaction. Kafka has two more states: Dead, while the tombstone of
an id that expired is on its way, and PrepareEpochFence, while PrepareAbort is on its way for a producer that is fenced.
Both last only as long as a write and are never in the log; here they are seen as a write under way.

Version 1 of transactions (KIP-98) keeps a producer's epoch from one transaction to the next. Version 2 (KIP-890) raises
it with each: the marker has the new epoch, so what comes late with the old one is recognised. A producer whose epochs
are used up gets a new id when its transaction is complete.

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
#: The transaction versions that clients speak: without, and with, a new epoch for each transaction.
V1, V2 = 0, 2


class Status(IntEnum):
    """As the log has them."""

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
        """As DescribeTransactions and ListTransactions name it."""
        return "".join(word.capitalize() for word in self.name.split("_"))

    @property
    def is_prepared(self) -> bool:
        """The outcome is decided, and not all partitions have heard of it."""
        return self in (Status.PREPARE_COMMIT, Status.PREPARE_ABORT)

    @property
    def is_commit(self) -> bool:
        return self in (Status.PREPARE_COMMIT, Status.COMPLETE_COMMIT)


class State(msgspec.Struct, frozen=True, kw_only=True):
    """What the log's latest record of an id says; `last_epoch` is known only where the step was made."""

    producer_id: int
    producer_epoch: int
    #: The epoch before this one, by which the repetition of a request is known.
    last_epoch: int = NO_EPOCH
    previous_producer_id: int = NO_ID
    #: Of a producer whose epochs are used up: its id when the transaction is complete.
    next_producer_id: int = NO_ID
    timeout_ms: int
    status: Status
    partitions: frozenset[TopicPartition] = frozenset()
    start_ms: int = -1
    update_ms: int
    client_version: int = V1

    @property
    def is_exhausted(self) -> bool:
        """No producer gets a higher epoch than this one; the one above is left for fencing it."""
        return self.producer_epoch >= MAX_EPOCH - 1

    # --- producers ----------------------------------------------------------------------------------------------------

    def knows(self, producer_id: int, epoch: int) -> bool:
        """Whether one who says to be this producer may be it, or may have been it before its epochs were used up."""
        if self.producer_epoch == NO_EPOCH or producer_id == self.producer_id:
            return True
        return producer_id == self.previous_producer_id and epoch >= MAX_EPOCH - 1

    def initialized(self, expected_epoch: int | None, timeout_ms: int, now_ms: int) -> State:
        """The producer begins anew under a higher epoch; the repetition of that finds it done.

        Raises KafkaError PRODUCER_FENCED for a producer whose epoch is past.
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
        """The producer begins anew under another id, as its epochs are used up."""
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
        """With more partitions; the first ones begin the transaction."""
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
        """The outcome is decided. In version 2 the epoch is a new one from here on."""
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
        """To be aborted, whatever its producer thinks: under a higher epoch, which nobody has been given."""
        return msgspec.structs.replace(
            self,
            producer_epoch=self.producer_epoch + 1,
            last_epoch=NO_EPOCH,
            status=Status.PREPARE_ABORT,
            update_ms=now_ms,
        )

    def completed(self, now_ms: int) -> State:
        """All partitions have heard of the outcome."""
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
        """Whether one that ends a transaction in version 2 has done so before: its epoch was raised by that.

        One that was fenced at the last epoch has none above that it could go on with.
        """
        if producer_id == self.producer_id and self.producer_epoch == epoch + 1:
            return self.producer_epoch < MAX_EPOCH
        is_new_id = producer_id == self.previous_producer_id and self.producer_epoch == 0
        return is_new_id and epoch == MAX_EPOCH - 1

    def has_ended(self, committed: bool) -> bool:
        """Whether the last transaction is complete with this outcome."""
        return self.status is (Status.COMPLETE_COMMIT if committed else Status.COMPLETE_ABORT)


def new_state(producer_id: int, timeout_ms: int, now_ms: int) -> State:
    """Of an id that nobody has used: its first producer gets epoch 0."""
    return State(
        producer_id=producer_id,
        producer_epoch=NO_EPOCH,
        timeout_ms=timeout_ms,
        status=Status.EMPTY,
        update_ms=now_ms,
    )


def fenced(state: State, epoch: int) -> KafkaError:
    """What a producer hears whose epoch is not the one of now."""
    return KafkaError(
        ErrorCode.PRODUCER_FENCED, f"producer {state.producer_id} has epoch {state.producer_epoch}, not {epoch}"
    )
