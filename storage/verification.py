"""Transactions that wait to begin in a partition, while a coordinator on another node is asked about them (KIP-890).

    begin -> the coordinator is asked -> check, append: without a checkpoint in between -> end

Between the coordinator's answer and the append, the transaction may end. Then its marker is in the log before its first
record, and the transaction that this record begins would never end (KAFKA-14402). So a marker ends all verifications of
its producer, and a batch may begin a transaction only if its own verification was not ended. Kafka calls this the
verification guard.

Each request has its own verification, so a request that names another client's producer has no effect on that client.
The code that begins a verification also ends it, so none is left over. When the log is closed, all of them are dropped.
"""

from __future__ import annotations

from barnabas.wire.errors import ErrorCode, KafkaError


class Verification:
    """A request that would begin a transaction in a partition. Compared by identity."""

    __slots__ = ("epoch", "producer_id", "sequence", "transactional_id")

    def __init__(self, transactional_id: str, producer_id: int, epoch: int, sequence: int = -1) -> None:
        """`sequence` is that of the request's first batch; -1 if it has no sequences."""
        self.transactional_id, self.producer_id, self.epoch = transactional_id, producer_id, epoch
        self.sequence = sequence


class Verifications:
    """The verifications of one partition that were not ended."""

    __slots__ = ("_of",)

    def __init__(self) -> None:
        self._of: dict[int, set[Verification]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._of.values()))

    def begin(self, verification: Verification) -> None:
        """Note a verification before the coordinator is asked. May be called again for another question."""
        self._of.setdefault(verification.producer_id, set()).add(verification)

    def end(self, verification: Verification) -> None:
        """Drop a verification, which a marker may have ended before."""
        standing = self._of.get(verification.producer_id)
        if standing is not None:
            standing.discard(verification)
            if not standing:
                del self._of[verification.producer_id]

    def marker_written(self, producer_id: int) -> None:
        """End all verifications of a producer: the transaction that has just ended may be the one in question."""
        self._of.pop(producer_id, None)

    def check(self, verification: Verification) -> None:
        """Check that the verified transaction may begin now. Raises KafkaError.

        The first sequence of a producer unknown to this partition can be any. So a batch must not begin a transaction
        while an earlier batch of the same producer waits to do so.
        """
        standing = self._of.get(verification.producer_id, ())
        if verification not in standing:
            raise KafkaError(
                ErrorCode.NOT_ENOUGH_REPLICAS, "the transaction was verified, and a marker came before the batch"
            )
        for other in standing:
            if (
                other.sequence < verification.sequence
                and other.epoch == verification.epoch
                and other.transactional_id == verification.transactional_id
            ):
                raise KafkaError(
                    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                    f"producer {verification.producer_id} sent sequence {verification.sequence} while "
                    f"{other.sequence} waits to begin the transaction",
                )
