"""Transaction state in `__transaction_state`: one record per transactional id."""

from typing import Annotated

from barnabas.wire.types import Int8, Int16, Int32, Int64, Message, String, Struct, Tag, message, v


@message(key=0, versions=v[0])
class TransactionLogKey(Message):
    transactional_id: String = ""


class PartitionsSchema(Struct):
    topic: String = ""
    partition_ids: list[Int32] = []


@message(key=0, versions=v[0:1], flexible=v[1:])
class TransactionLogValue(Message):
    producer_id: Int64 = 0
    previous_producer_id: Annotated[Int64, v[1], Tag(0)] = -1
    next_producer_id: Annotated[Int64, v[1], Tag(1)] = -1
    producer_epoch: Int16 = 0
    next_producer_epoch: Annotated[Int16, v[1], Tag(3)] = -1
    transaction_timeout_ms: Int32 = 0
    transaction_status: Int8 = 0
    transaction_partitions: list[PartitionsSchema] | None = []
    transaction_last_update_timestamp_ms: Int64 = 0
    transaction_start_timestamp_ms: Int64 = 0
    client_transaction_version: Annotated[Int16, v[1], Tag(2)] = 0
