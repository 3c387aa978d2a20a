"""Transactions that wait to begin in a partition, while a coordinator elsewhere is asked whether they may (KIP-890).

    begin -> the coordinator is asked -> check, append: in one turn -> end

Between the coordinator's answer and the append the transaction may end. Its marker then comes before its first record,
and nothing would ever end what that record begins (KAFKA-14402). So a marker ends all verifications of its producer,
and a batch may begin a transaction only while its own verification stands. Kafka calls it the verification guard.

Each request has a verification of its own: one that names the producer of somebody else disturbs nobody. Whoever begins
one ends it, so that nothing stays. All are forgotten with the log that was open: then none stands.
"""

from __future__ import annotations

from barnabas.wire.errors import ErrorCode, KafkaError


class Verification:
    """One request that would begin a transaction in a partition. Known by its identity."""

    __slots__ = ("epoch", "producer_id", "sequence", "transactional_id")

    def __init__(self, transactional_id: str, producer_id: int, epoch: int, sequence: int = -1) -> None:
        """`sequence` is that of its first batch; -1 for one without sequences."""
        self.transactional_id, self.producer_id, self.epoch = transactional_id, producer_id, epoch
        self.sequence = sequence


class Verifications:
    """Those of one partition that stand."""

    __slots__ = ("_of",)

    def __init__(self) -> None:
        self._of: dict[int, set[Verification]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._of.values()))

    def begin(self, verification: Verification) -> None:
        """The coordinator is asked after this, perhaps once more."""
        self._of.setdefault(verification.producer_id, set()).add(verification)

    def end(self, verification: Verification) -> None:
        """It may have ended before."""
        standing = self._of.get(verification.producer_id)
        if standing is not None:
            standing.discard(verification)
            if not standing:
                del self._of[verification.producer_id]

    def marker_written(self, producer_id: int) -> None:
        """A transaction of the producer has ended: perhaps the one that is being verified."""
        self._of.pop(producer_id, None)

    def check(self, verification: Verification) -> None:
        """Whether its transaction may begin now.

        Of a producer that is not known here any sequence may be the first. So a batch does not begin a transaction
        while an earlier one of the same producer waits for that. Raises KafkaError.
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
