"""InitProducerId (API key 22): get a producer id and epoch (KIP-98, KIP-360)."""

from typing import Annotated

from barnabas.wire.types import Int16, Int32, Int64, Message, String, message, v


@message(key=22, versions=v[0:5], flexible=v[2:])
class InitProducerIdRequest(Message):
    transactional_id: String | None = ""
    transaction_timeout_ms: Int32 = 0
    producer_id: Annotated[Int64, v[3:]] = -1
    producer_epoch: Annotated[Int16, v[3:]] = -1


@message(key=22, versions=v[0:5], flexible=v[2:])
class InitProducerIdResponse(Message):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    producer_id: Int64 = -1
    producer_epoch: Int16 = 0
