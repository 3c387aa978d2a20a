"""AddPartitionsToTxn (API key 24): add partitions to a transaction."""

from typing import Annotated

from barnabas.wire.types import Bool, Int16, Int32, Int64, Message, String, Struct, ignorable, message, v


class AddPartitionsToTxnTopic(Struct):
    name: String = ""
    partitions: list[Int32] = []


class AddPartitionsToTxnTransaction(Struct):
    transactional_id: String = ""
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    verify_only: Bool = False
    topics: list[AddPartitionsToTxnTopic] = []


@message(key=24, versions=v[0:5], flexible=v[3:])
class AddPartitionsToTxnRequest(Message):
    transactions: Annotated[list[AddPartitionsToTxnTransaction], v[4:]] = []
    v3_and_below_transactional_id: Annotated[String, v[:3]] = ""
    v3_and_below_producer_id: Annotated[Int64, v[:3]] = 0
    v3_and_below_producer_epoch: Annotated[Int16, v[:3]] = 0
    v3_and_below_topics: Annotated[list[AddPartitionsToTxnTopic], v[:3]] = []


class AddPartitionsToTxnPartitionResult(Struct):
    partition_index: Int32 = 0
    partition_error_code: Int16 = 0


class AddPartitionsToTxnTopicResult(Struct):
    name: String = ""
    results_by_partition: list[AddPartitionsToTxnPartitionResult] = []


class AddPartitionsToTxnResult(Struct):
    transactional_id: String = ""
    topic_results: list[AddPartitionsToTxnTopicResult] = []


@message(key=24, versions=v[0:5], flexible=v[3:])
class AddPartitionsToTxnResponse(Message):
    throttle_time_ms: Int32 = 0
    error_code: Annotated[Int16, v[4:], ignorable] = 0
    results_by_transaction: Annotated[list[AddPartitionsToTxnResult], v[4:]] = []
    results_by_topic_v3_and_below: Annotated[list[AddPartitionsToTxnTopicResult], v[:3]] = []
