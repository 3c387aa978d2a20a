"""AddOffsetsToTxn (API key 25): add a group's offsets to a transaction."""

from barnabas.wire.types import Int16, Int32, Int64, Message, String, message, v


@message(key=25, versions=v[0:4], flexible=v[3:])
class AddOffsetsToTxnRequest(Message):
    transactional_id: String = ""
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    group_id: String = ""


@message(key=25, versions=v[0:4], flexible=v[3:])
class AddOffsetsToTxnResponse(Message):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
