"""ListTransactions (API key 66): transactions by state, producer or duration (KIP-664)."""

from typing import Annotated

from barnabas.wire.types import Int16, Int32, Int64, Message, String, Struct, message, v


@message(key=66, versions=v[0:2], flexible=v[0:])
class ListTransactionsRequest(Message):
    state_filters: list[String] = []
    producer_id_filters: list[Int64] = []
    duration_filter: Annotated[Int64, v[1:]] = -1
    transactional_id_pattern: Annotated[String | None, v[2]] = None


class TransactionState(Struct):
    transactional_id: String = ""
    producer_id: Int64 = 0
    transaction_state: String = ""


@message(key=66, versions=v[0:2], flexible=v[0:])
class ListTransactionsResponse(Message):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    unknown_state_filters: list[String] = []
    transaction_states: list[TransactionState] = []
