"""DescribeTransactions (API key 65): state of transactions (KIP-664)."""

from barnabas.wire.types import Int16, Int32, Int64, Message, String, Struct, message, v


@message(key=65, versions=v[0], flexible=v[0:])
class DescribeTransactionsRequest(Message):
    transactional_ids: list[String] = []


class TopicData(Struct):
    topic: String = ""
    partitions: list[Int32] = []


class TransactionState(Struct):
    error_code: Int16 = 0
    transactional_id: String = ""
    transaction_state: String = ""
    transaction_timeout_ms: Int32 = 0
    transaction_start_time_ms: Int64 = 0
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    topics: list[TopicData] = []


@message(key=65, versions=v[0], flexible=v[0:])
class DescribeTransactionsResponse(Message):
    throttle_time_ms: Int32 = 0
    transaction_states: list[TransactionState] = []
