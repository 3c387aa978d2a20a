"""The records of `__transaction_state`: one for each transactional id, in Kafka's schemas.

Key and value each begin with a 16-bit number: 0 in a key, the version of the schema in a value. A null value means that
the id is forgotten. Version 1 is written, as by Kafka from transaction.version 1 on; version 0 is read as well.
"""

from __future__ import annotations

from barnabas.groupcoord.log.records import CoordinatorRecord
from barnabas.groupcoord.transactions.state import State, Status
from barnabas.wire.codegen import message_codec
from barnabas.wire.records.transaction_log import PartitionsSchema, TransactionLogKey, TransactionLogValue
from barnabas.wire.schema import ProtocolError

_KIND = 0
_VERSION = 1


def transaction_record(transactional_id: str, state: State | None) -> CoordinatorRecord:
    """The record of a state; without a state, the one that forgets the id."""
    key = message_codec(TransactionLogKey, 0).build(TransactionLogKey(transactional_id=transactional_id))
    return CoordinatorRecord(_prefixed(_KIND, key), None if state is None else _value(state))


def parse_transaction(key: bytes, value: bytes | None) -> tuple[str, State | None] | None:
    """The id and state in a record; None for an unknown kind. Raises ProtocolError for a damaged record."""
    if _number(key) != _KIND:
        return None
    transactional_id = message_codec(TransactionLogKey, 0).decode(key, 2)[0].transactional_id
    if value is None:
        return transactional_id, None
    said = message_codec(TransactionLogValue, _number(value)).decode(value, 2)[0]
    try:
        status = Status(said.transaction_status)
    except ValueError:
        raise ProtocolError(f"transaction status {said.transaction_status}") from None
    places = [(each.topic, index) for each in said.transaction_partitions or () for index in each.partition_ids]
    return transactional_id, State(
        producer_id=said.producer_id,
        producer_epoch=said.producer_epoch,
        previous_producer_id=said.previous_producer_id,
        next_producer_id=said.next_producer_id,
        timeout_ms=said.transaction_timeout_ms,
        status=status,
        partitions=frozenset(places),
        start_ms=said.transaction_start_timestamp_ms,
        update_ms=said.transaction_last_update_timestamp_ms,
        client_version=said.client_transaction_version,
    )


def _value(state: State) -> bytes:
    by_topic: dict[str, list[int]] = {}
    for topic, index in state.partitions:
        by_topic.setdefault(topic, []).append(index)
    value = TransactionLogValue(
        producer_id=state.producer_id,
        previous_producer_id=state.previous_producer_id,
        next_producer_id=state.next_producer_id,
        producer_epoch=state.producer_epoch,
        transaction_timeout_ms=state.timeout_ms,
        transaction_status=state.status,
        transaction_partitions=None
        if state.status is Status.EMPTY
        else [PartitionsSchema(topic, indexes) for topic, indexes in by_topic.items()],
        transaction_last_update_timestamp_ms=state.update_ms,
        transaction_start_timestamp_ms=state.start_ms,
        client_transaction_version=state.client_version,
    )
    return _prefixed(_VERSION, message_codec(TransactionLogValue, _VERSION).build(value))


def _prefixed(number: int, body: bytes) -> bytes:
    return number.to_bytes(2, "big", signed=True) + body


def _number(data: bytes) -> int:
    return int.from_bytes(data[:2], "big", signed=True)
