"""The content of one `__transaction_state` partition, read from its start to its end."""

from __future__ import annotations

from barnabas.groupcoord.log.image import NO_PRODUCER
from barnabas.groupcoord.transactions.records import parse_transaction
from barnabas.groupcoord.transactions.state import State


class TransactionImage:
    """The last state of every transactional id; records are applied in log order."""

    def __init__(self) -> None:
        self.states: dict[str, State] = {}

    def apply(self, key: bytes, value: bytes | None, producer_id: int = NO_PRODUCER) -> None:
        """Apply one record. Raises ProtocolError if it cannot be read."""
        said = parse_transaction(key, value)
        if said is None:
            return
        transactional_id, state = said
        if state is None:
            self.states.pop(transactional_id, None)
        else:
            self.states[transactional_id] = state

    def end_transaction(self, producer_id: int, *, committed: bool) -> None:
        """Does nothing: no record of this log is written in a transaction."""
