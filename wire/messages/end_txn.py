"""EndTxn (API key 26): commit or abort a transaction."""

from typing import Annotated

from barnabas.wire.types import Bool, Int16, Int32, Int64, Message, String, ignorable, message, v


@message(key=26, versions=v[0:5], flexible=v[3:])
class EndTxnRequest(Message):
    transactional_id: String = ""
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    committed: Bool = False


@message(key=26, versions=v[0:5], flexible=v[3:])
class EndTxnResponse(Message):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    producer_id: Annotated[Int64, v[5], ignorable] = -1
    producer_epoch: Annotated[Int16, v[5], ignorable] = -1
